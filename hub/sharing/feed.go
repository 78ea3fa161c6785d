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

// pageSize is how many objects of one namespace are listed at once.
const pageSize = 500

// feedKey names a feed: the objects of a definition that was made again are others.
type feedKey struct {
	resource   schema.GroupVersionResource
	definition types.UID
}

// feed follows the objects of a resource. It is a watcher.Handler; its fields are guarded by
// Controller.mu.
type feed struct {
	controller *Controller
	key        feedKey
	client     dynamic.NamespaceableResourceInterface
	scopes     map[string]*scope // by namespace
	// read: a start was complete. starting: one is not.
	read, starting bool
	// version is the latest that was seen.
	version string
	// problem is why nothing can be shared: we may not watch, or the definition was found
	// to be going. Of the latter there is no way back.
	problem *wire.ShareProblem
	ends    bool

	stop    context.CancelFunc
	stopped bool
}

// attach has a share know the objects of a place; c.mu is held.
func (c *Controller) attach(s *share, at place) *scope {
	key := feedKey{resource: at.resource, definition: at.definition}
	f := c.feeds[key]
	if f == nil {
		f = c.newFeed(key)
		c.feeds[key] = f
	}
	in := f.scopes[at.namespace]
	if in == nil || in.uid != at.uid {
		in = newScope(f, at)
		f.scopes[at.namespace] = in
		if f.read && !f.starting {
			c.reads.Add(scopeKey{feedKey: key, namespace: at.namespace})
		}
	}
	in.shares[s] = struct{}{}
	return in
}

// detach ends that, and with the last share of a feed the feed; c.mu is held.
func (c *Controller) detach(s *share, in *scope) {
	delete(in.shares, s)
	f := in.feed
	if len(in.shares) > 0 {
		return
	}
	if f.scopes[in.namespace] == in {
		delete(f.scopes, in.namespace)
	}
	if len(f.scopes) == 0 {
		f.stopped = true
		f.stop()
		delete(c.feeds, f.key)
	}
}

// newFeed starts one; c.mu is held.
func (c *Controller) newFeed(key feedKey) *feed {
	ctx, cancel := context.WithCancel(c.life)
	f := &feed{
		controller: c, key: key, client: c.cfg.Dynamic.Resource(key.resource), scopes: map[string]*scope{}, stop: cancel,
	}
	source := watcher.NewListWatch(f.client, nil)
	start := source.Watch
	source.Watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		if o.ResourceVersion != "" && f.refused() {
			// What there is was not shared for a while: it is read anew.
			return nil, apierrors.NewResourceExpired("objects could not be watched")
		}
		return start(ctx, o)
	}
	follower := &watcher.Watcher{
		ListWatch: source, Handler: f, IsDenied: func(err error) bool { return refusalOf(err) != nil },
		Log: c.cfg.Logger.WithValues("resource", key.resource.GroupResource().String()),
	}
	c.running.Go(func() { follower.Run(ctx) })
	return f
}

func (f *feed) refused() bool {
	f.controller.mu.Lock()
	defer f.controller.mu.Unlock()
	return f.problem != nil
}

// refusalOf is what an API server's refusal to list or to watch says of a resource; nil of
// other errors, which pass.
func refusalOf(err error) *wire.ShareProblem {
	switch {
	case err == nil:
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return wire.NewShareProblem(v1alpha1.ReasonRightsMissing, "the objects cannot be watched: "+err.Error())
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return wire.NewShareProblem(v1alpha1.ReasonDefinitionNotReady, "the resource is not served")
	}
	return nil
}

// StartSync implements watcher.Handler.
func (f *feed) StartSync() {
	f.controller.mu.Lock()
	defer f.controller.mu.Unlock()
	f.starting = true
	for _, in := range f.scopes {
		in.fresh = map[string]*object{}
	}
}

// FinishSync implements watcher.Handler.
func (f *feed) FinishSync(version string) {
	c := f.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stopped {
		return
	}
	restored := f.version != "" && newer(f.version, version)
	f.starting, f.read, f.version = false, true, version
	if !f.ends {
		f.problem = nil
	}
	for _, in := range f.scopes {
		if in.fresh == nil {
			c.reads.Add(scopeKey{feedKey: f.key, namespace: in.namespace})
			continue
		}
		in.merge(in.fresh, version, restored)
		in.fresh = nil
		c.refresh(in)
	}
	c.settle()
}

// HandleEvent implements watcher.Handler.
func (f *feed) HandleEvent(m metav1.Object, deleted bool) {
	obj, ok := m.(*unstructured.Unstructured)
	if !ok || !f.needs(obj) {
		return
	}
	if deleted {
		f.dropped(obj)
		return
	}
	o, err := read(obj)
	if err != nil {
		f.controller.cfg.Logger.Error(err, "object cannot be shared", "object", obj.GetNamespace()+"/"+obj.GetName())
		return
	}
	f.taken(obj, o)
}

// needs notes the version of an object, and tells whether it is in a namespace of shares.
func (f *feed) needs(obj *unstructured.Unstructured) bool {
	f.controller.mu.Lock()
	defer f.controller.mu.Unlock()
	if v := obj.GetResourceVersion(); !f.starting && newer(v, f.version) {
		f.version = v
	}
	return !f.stopped && f.scopes[obj.GetNamespace()] != nil
}

func (f *feed) taken(obj *unstructured.Unstructured, o *object) {
	c := f.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	in := f.scopes[obj.GetNamespace()]
	switch {
	case f.stopped || in == nil:
	case !f.starting:
		if !in.knows(o.version) && in.take(obj.GetName(), o) {
			c.changed(in, obj.GetName())
		}
	case in.fresh != nil:
		in.fresh[obj.GetName()] = o.after(in.objects[obj.GetName()])
	}
}

func (f *feed) dropped(obj *unstructured.Unstructured) {
	c := f.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	in := f.scopes[obj.GetNamespace()]
	if f.stopped || in == nil {
		return
	}
	if f.starting {
		delete(in.fresh, obj.GetName())
		in.note(obj.GetName(), obj.GetResourceVersion())
		return
	}
	if in.knows(obj.GetResourceVersion()) || !in.drop(obj.GetName(), obj.GetUID(), obj.GetResourceVersion()) {
		return
	}
	if len(in.vanished) > 0 {
		c.evidence.Add(f.key)
	}
	c.changed(in, obj.GetName())
}

// HandleDenied implements watcher.Handler.
func (f *feed) HandleDenied(err error) {
	c := f.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stopped || f.ends {
		return
	}
	f.problem = refusalOf(err)
	c.tell(f)
	c.settle()
}

// tell publishes the shares of a feed; c.mu is held.
func (c *Controller) tell(f *feed) {
	for _, in := range f.scopes {
		for s := range in.shares {
			s.publish()
		}
	}
}

// scopeKey names a scope.
type scopeKey struct {
	feedKey
	namespace string
}

// readScope lists the objects of a namespace that shares came to need while its feed was
// running.
func (c *Controller) readScope(ctx context.Context, key scopeKey) error {
	in := c.unread(key)
	if in == nil {
		return nil
	}
	list, version, err := listAll(ctx, in.feed.client.Namespace(key.namespace))
	c.mu.Lock()
	defer c.mu.Unlock()
	defer in.release()
	if in.refusal = refusalOf(err); in.refusal != nil {
		for s := range in.shares {
			s.publish()
		}
		c.settle()
	}
	if err != nil {
		return fmt.Errorf("list %s in namespace %s: %w", key.resource.GroupResource(), key.namespace, err)
	}
	if in.read || in.feed.stopped || in.feed.scopes[key.namespace] != in {
		return nil
	}
	in.merge(list, version, false)
	c.refresh(in)
	c.settle()
	return nil
}

// unread is a scope whose objects are to be listed, with a guard; nil if there is none.
func (c *Controller) unread(key scopeKey) *scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.feeds[key.feedKey]
	if f == nil {
		return nil
	}
	in := f.scopes[key.namespace]
	if in == nil || in.read {
		return nil
	}
	in.guard()
	return in
}

// listAll reads the objects of a namespace page by page. The version is that of the first
// page, which the others are of, too.
func listAll(ctx context.Context, client dynamic.ResourceInterface) (map[string]*object, string, error) {
	out := map[string]*object{}
	for o := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := client.List(ctx, o)
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			kept, err := read(&page.Items[i])
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
