// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// pageSize is how many objects of a namespace are listed at once.
const pageSize = 500

// watchKey identifies a watch: a definition that was created again has other objects.
type watchKey struct {
	resource   schema.GroupVersionResource
	definition types.UID
}

// objectWatch watches the objects of a resource. It is a watcher.Handler; its fields are guarded
// by registry.mu.
type objectWatch struct {
	registry *registry
	key      watchKey
	client   dynamic.NamespaceableResourceInterface
	scopes   map[string]*scope // by namespace
	// isListed: a list was complete. isListing: a list is under way.
	isListed, isListing bool
	// version is the latest that was observed.
	version string
	// problem is why nothing can be shared: the watch was refused, or the definition is being
	// deleted. The latter is final.
	problem       *wire.ShareProblem
	isTerminating bool

	stop      context.CancelFunc
	isStopped bool
}

// addToScope returns the scope of a place, with a share added; c.mu is held.
func (c *registry) addToScope(s *share, at place) *scope {
	key := watchKey{resource: at.resource, definition: at.definition}
	f := c.watches[key]
	if f == nil {
		f = c.startWatch(key)
		c.watches[key] = f
	}
	in := f.scopes[at.namespace]
	if in == nil || in.uid != at.uid {
		in = newScope(f, at)
		f.scopes[at.namespace] = in
		if f.isListed && !f.isListing {
			c.listQueue.Add(scopeKey{watchKey: key, namespace: at.namespace})
		}
	}
	in.shares[s] = struct{}{}
	return in
}

// removeFromScope removes a share from a scope, and stops the watch after its last share; c.mu
// is held.
func (c *registry) removeFromScope(s *share, in *scope) {
	delete(in.shares, s)
	f := in.feed
	if len(in.shares) > 0 {
		return
	}
	if f.scopes[in.namespace] == in {
		delete(f.scopes, in.namespace)
	}
	if len(f.scopes) == 0 {
		f.isStopped = true
		f.stop()
		delete(c.watches, f.key)
	}
}

// startWatch starts the watch of a resource; c.mu is held.
func (c *registry) startWatch(key watchKey) *objectWatch {
	ctx, cancel := context.WithCancel(c.runCtx)
	f := &objectWatch{
		registry: c, key: key, client: c.cfg.Dynamic.Resource(key.resource), scopes: map[string]*scope{}, stop: cancel,
	}
	source := watcher.NewListWatch(f.client, nil)
	start := source.Watch
	source.Watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if o.ResourceVersion != "" && f.isRefused() {
			// Nothing was shared for a while, so all is listed again.
			return nil, apierrors.NewResourceExpired("objects could not be watched")
		}
		return start(ctx, o)
	}
	follower := &watcher.Watcher{
		ListWatch: source, Handler: f, IsDenied: func(err error) bool { return problemOf(err) != nil },
		Log: c.cfg.Logger.WithValues("resource", key.resource.GroupResource().String()),
	}
	c.running.Go(func() { follower.Run(ctx) })
	return f
}

func (f *objectWatch) isRefused() bool {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	return f.problem != nil
}

// problemOf returns the problem of a refused list or watch; nil for other errors, which are
// retried.
func problemOf(err error) *wire.ShareProblem {
	switch {
	case err == nil:
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return wire.NewShareProblem(v1alpha1.ReasonRightsMissing, "the objects cannot be watched: "+err.Error())
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return wire.NewShareProblem(v1alpha1.ReasonDefinitionNotReady, "the resource is not served")
	}
	return nil
}

// StartSync begins a list.
func (f *objectWatch) StartSync() {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	f.isListing = true
	for _, in := range f.scopes {
		in.pendingList = map[string]*object{}
	}
}

// FinishSync ends a list.
func (f *objectWatch) FinishSync(version string) {
	c := f.registry
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.isStopped {
		return
	}
	restored := f.version != "" && isNewer(f.version, version)
	f.isListing, f.isListed, f.version = false, true, version
	if !f.isTerminating {
		f.problem = nil
	}
	for _, in := range f.scopes {
		if in.pendingList == nil {
			c.listQueue.Add(scopeKey{watchKey: f.key, namespace: in.namespace})
			continue
		}
		in.mergeList(in.pendingList, version, restored)
		in.pendingList = nil
		c.publishScope(in)
	}
	c.checkComplete()
}

// HandleEvent handles a change of an object.
func (f *objectWatch) HandleEvent(m metav1.Object, deleted bool) {
	obj, ok := m.(*unstructured.Unstructured)
	if !ok || !f.observeVersion(obj) {
		return
	}
	if deleted {
		f.handleDeletion(obj)
		return
	}
	o, err := newObject(obj)
	if err != nil {
		f.registry.cfg.Logger.Error(err, "Object cannot be shared", "object", obj.GetNamespace()+"/"+obj.GetName())
		return
	}
	f.handleObject(obj, o)
}

// observeVersion records the version of an object, and reports whether its namespace is
// shared.
func (f *objectWatch) observeVersion(obj *unstructured.Unstructured) bool {
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	if v := obj.GetResourceVersion(); !f.isListing && isNewer(v, f.version) {
		f.version = v
	}
	return !f.isStopped && f.scopes[obj.GetNamespace()] != nil
}

func (f *objectWatch) handleObject(obj *unstructured.Unstructured, o *object) {
	c := f.registry
	c.mu.Lock()
	defer c.mu.Unlock()
	in := f.scopes[obj.GetNamespace()]
	switch {
	case f.isStopped || in == nil:
	case !f.isListing:
		if !in.isOutdated(o.version) && in.putObject(obj.GetName(), o) {
			c.syncChangedObject(in, obj.GetName())
		}
	case in.pendingList != nil:
		in.pendingList[obj.GetName()] = o.reuse(in.objects[obj.GetName()])
	}
}

func (f *objectWatch) handleDeletion(obj *unstructured.Unstructured) {
	c := f.registry
	c.mu.Lock()
	defer c.mu.Unlock()
	in := f.scopes[obj.GetNamespace()]
	if f.isStopped || in == nil {
		return
	}
	if f.isListing {
		delete(in.pendingList, obj.GetName())
		in.recordDeletion(obj.GetName(), obj.GetResourceVersion())
		return
	}
	if in.isOutdated(obj.GetResourceVersion()) || !in.deleteObject(obj.GetName(), obj.GetUID(), obj.GetResourceVersion()) {
		return
	}
	if len(in.unverified) > 0 {
		c.deletionQueue.Add(f.key)
	}
	c.syncChangedObject(in, obj.GetName())
}

// HandleDenied handles an error for which the objects cannot be watched.
func (f *objectWatch) HandleDenied(err error) {
	c := f.registry
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.isStopped || f.isTerminating {
		return
	}
	f.problem = problemOf(err)
	c.publishShares(f)
	c.checkComplete()
}

// publishShares publishes all shares of a watch; c.mu is held.
func (c *registry) publishShares(f *objectWatch) {
	for _, in := range f.scopes {
		for s := range in.shares {
			s.publishShare()
		}
	}
}

type scopeKey struct {
	watchKey
	namespace string
}

// scopeLister lists the objects of scopes.
type scopeLister struct{ *registry }

// listScope lists the objects of a namespace that became shared while its watch was running.
func (c *scopeLister) listScope(ctx context.Context, key scopeKey) error {
	in := c.getUnlistedScope(key)
	if in == nil {
		return nil
	}
	list, version, err := listAll(ctx, in.feed.client.Namespace(key.namespace))
	c.mu.Lock()
	defer c.mu.Unlock()
	defer in.releaseDeletions()
	if in.refusal = problemOf(err); in.refusal != nil {
		for s := range in.shares {
			s.publishShare()
		}
		c.checkComplete()
	}
	if err != nil {
		return fmt.Errorf("list %s in namespace %s: %w", key.resource.GroupResource(), key.namespace, err)
	}
	if in.isListed || in.feed.isStopped || in.feed.scopes[key.namespace] != in {
		return nil
	}
	in.mergeList(list, version, false)
	c.publishScope(in)
	c.checkComplete()
	return nil
}

// getUnlistedScope returns a scope that must be listed, which keeps deletions meanwhile; nil
// if it need not be.
func (c *scopeLister) getUnlistedScope(key scopeKey) *scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.watches[key.watchKey]
	if f == nil {
		return nil
	}
	in := f.scopes[key.namespace]
	if in == nil || in.isListed {
		return nil
	}
	in.keepDeletions()
	return in
}

// listAll lists the objects of a namespace page by page. All pages have the version of the
// first.
func listAll(ctx context.Context, client dynamic.ResourceInterface) (map[string]*object, string, error) {
	out := map[string]*object{}
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := client.List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			kept, err := newObject(&page.Items[i])
			if err != nil {
				return nil, "", err
			}
			out[page.Items[i].GetName()] = kept
		}
		if page.GetContinue() == "" {
			return out, page.GetResourceVersion(), nil
		}
		o.Continue = page.GetContinue()
	}
}
