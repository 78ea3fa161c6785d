// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/spokelet/spokelet/internal/watcher"
)

// watchedResources returns the resources that RBAC reads.
func watchedResources() []string {
	return []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
}

// AllNamespaces is the namespace of a change that counts in all of them.
const AllNamespaces = metav1.NamespaceAll

// Handler is notified of changes, from several goroutines.
type Handler interface {
	// WatchLost and WatchEstablished count the watches that do not see changes: each is lost
	// before Watch returns, until it is established. Any rights may have changed meanwhile.
	WatchLost()
	WatchEstablished()
	// RightsChanged reports that rights changed, or may have, in a namespace or in
	// AllNamespaces.
	RightsChanged(namespace string)
}

// Watch watches all that RBAC reads, until stop is called.
func Watch(client metadata.Interface, handler Handler, log logr.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, name := range watchedResources() {
		handler.WatchLost()
		n := &notifier{handler: handler, log: log.WithValues("resource", name)}
		follower := &watcher.Watcher{
			ListWatch: n.feed(client.Resource(rbacv1.SchemeGroupVersion.WithResource(name))), Handler: n,
			IsDenied: func(error) bool { return true }, // every watch that ends early is lost
		}
		running.Go(func() { follower.Run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// notifier notifies a handler of what the watch of one resource sees. It is a watcher.Handler.
type notifier struct {
	handler Handler
	log     logr.Logger
	// established is set while the handler counts on this watch. Events before that are of
	// what there is, not of changes.
	established bool
	// isStreaming is set while a watch sends initial events.
	isStreaming bool
	// isLogged is set from a failure until a watch is established.
	isLogged bool
}

// feed watches a resource. A watch that resumes is established when it begins.
func (n *notifier) feed(resource metadata.ResourceInterface) watcher.ListWatch {
	return watcher.ListWatch{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			stream, err := resource.Watch(ctx, o)
			n.isStreaming = err == nil && o.SendInitialEvents != nil
			if err == nil && !n.isStreaming {
				n.establish()
			}
			return stream, err
		},
	}
}

// establish has the handler count on this watch.
func (n *notifier) establish() {
	if n.established {
		return
	}
	n.established, n.isLogged = true, false
	n.handler.WatchEstablished()
	n.handler.RightsChanged(AllNamespaces) // maybe, while nothing was watched
}

// HandleEvent reports a change of one object.
func (n *notifier) HandleEvent(obj metav1.Object, _ bool) {
	if n.established {
		n.handler.RightsChanged(obj.GetNamespace())
	}
}

// StartSync begins the initial events, which are no changes.
func (*notifier) StartSync() {}

// FinishSync establishes a watch whose initial events are complete. One that follows a list in pages
// is yet to begin.
func (n *notifier) FinishSync(string) {
	if n.isStreaming {
		n.establish()
	}
}

// HandleDenied reports a watch that ended early.
func (n *notifier) HandleDenied(err error) {
	if n.established {
		n.established = false
		n.handler.WatchLost()
	}
	if !n.isLogged {
		n.isLogged = true
		n.log.Info("changes of rights are not seen: roles and bindings cannot be watched", "err", err)
	}
}
