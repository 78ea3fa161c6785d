// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// restart has the share follow the cluster as its spec says, from the beginning.
func (s *share) restart(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.read, s.definition, s.problem, s.pass = false, nil, nil, nil
	other := s.engine.claim(s)
	if s.spec == nil || s.spec.Problem != nil {
		return
	}
	if other != "" {
		s.problem = clusterProblem(syncv1alpha1.ReasonOverlap, "SharedResource %q shares the same objects", other)
		s.changed()
		return
	}
	ctx, s.stop = context.WithCancel(ctx)
	f := &followed{share: s, spec: s.spec, ctx: ctx}
	s.engine.spawn(func() {
		only := fields.OneTermEqualSelector(metav1.ObjectNameField, definitionName(f.spec)).String()
		feed := watcher.NewListWatch(s.engine.cfg.Definitions.Resource(definitions()), func(o *metav1.ListOptions) { o.FieldSelector = only })
		follower := &watcher.Watcher{ListWatch: feed, Handler: &definitionSink{followed: f}, Log: s.engine.cfg.Logger}
		follower.Run(ctx)
		f.endObjects()
	})
}

// followed is one life of what follows the cluster for a share. It belongs to the
// goroutine of the definition's follower.
type followed struct {
	share *share
	spec  *wire.Share
	ctx   context.Context
	// cancel ends the follower of the objects, and ended is closed when it has; nil when
	// none runs.
	cancel context.CancelFunc
	ended  chan struct{}
}

// endObjects ends what follows the objects.
func (f *followed) endObjects() {
	if f.cancel != nil {
		f.cancel()
		<-f.ended
		f.cancel = nil
	}
}

// use has the objects followed while their definition can be used.
func (f *followed) use(d *definition, problem *wire.ShareProblem) {
	s := f.share
	s.mu.Lock()
	if f.ctx.Err() != nil { // another life has begun
		s.mu.Unlock()
		return
	}
	if old := s.definition; problem == nil && old != nil {
		if old.raw != d.raw || old.status != d.status {
			s.definition = d
		}
		s.mu.Unlock()
		return
	}
	s.definition, s.problem = d, problem
	if problem != nil {
		s.read = false
		s.disbelieve()
		if f.cancel != nil {
			f.cancel() // while the share is locked: nothing of it comes after the problem
		}
	}
	s.changed()
	s.mu.Unlock()
	f.endObjects()
	if problem == nil {
		f.followObjects()
	}
}

func (f *followed) followObjects() {
	ctx, cancel := context.WithCancel(f.ctx)
	f.cancel, f.ended = cancel, make(chan struct{})
	objects := f.share.engine.cfg.Objects.Resource(resourceOf(f.spec)).Namespace(f.spec.SpokeNamespace)
	sink := &objectSink{followed: f, ctx: ctx}
	feed := watcher.NewListWatch(objects, nil)
	follower := &watcher.Watcher{
		ListWatch: watcher.ListWatch{List: feed.List, Watch: sink.resuming(feed.Watch)}, Handler: sink, Log: f.share.engine.cfg.Logger,
		IsDenied: func(err error) bool {
			return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
		},
	}
	ended := f.ended
	run := func() {
		defer close(ended)
		follower.Run(ctx)
	}
	if !f.share.engine.spawn(run) {
		close(ended)
	}
}

// definitionSink is told of the one definition of a share.
type definitionSink struct {
	*followed
	// found: a fresh read has seen it.
	found bool
}

// StartSync begins a fresh read.
func (d *definitionSink) StartSync() { d.found = false }

// FinishSync ends it.
func (d *definitionSink) FinishSync(string) {
	if !d.found {
		d.use(nil, d.share.missing(d.ctx, d.spec))
	}
}

// HandleEvent takes the definition as it is.
func (d *definitionSink) HandleEvent(obj metav1.Object, deleted bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if deleted {
		d.use(nil, d.share.missing(d.ctx, d.spec))
		return
	}
	d.found = true
	d.use(readDefinition(u, d.spec))
}

// HandleDenied says that definitions cannot be read.
func (d *definitionSink) HandleDenied(err error) {
	d.use(nil, clusterProblem(syncv1alpha1.ReasonRightsMissing, "definitions cannot be read: %v", err))
}

// objectSink is told of the objects of a share.
type objectSink struct {
	*followed
	ctx context.Context
	// refused: the last request was.
	refused bool
}

// resuming notices that objects are followed again, from where that ended.
func (o *objectSink) resuming(begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, options)
		if err == nil && o.refused && options.ResourceVersion != "" {
			o.refused = false
			o.share.resume(o.ctx)
		}
		return w, err
	}
}

// StartSync begins a fresh read, of which nothing is known yet.
func (o *objectSink) StartSync() { o.share.begin(o.ctx) }

// FinishSync ends it.
func (o *objectSink) FinishSync(version string) {
	o.refused = false
	if o.share.finish(o.ctx, version) {
		return
	}
	// The cluster was restored from a backup: what is known is newer than what is there,
	// so that all is read once more.
	o.share.engine.start(o.share)
}

// HandleEvent takes an object as it is.
func (o *objectSink) HandleEvent(obj metav1.Object, deleted bool) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		o.share.spokeHas(o.ctx, u, deleted)
	}
}

// HandleDenied says why objects cannot be read.
func (o *objectSink) HandleDenied(err error) {
	o.refused = true
	gr := resourceOf(o.spec).GroupResource().String()
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		o.share.fail(o.ctx, clusterProblem(syncv1alpha1.ReasonRightsMissing,
			"%s in namespace %q cannot be read: shared.allow of the agent's chart does not name them, or the namespace does not exist", gr, o.spec.SpokeNamespace))
	case apierrors.IsNotFound(err):
		o.share.fail(o.ctx, clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "%s is not served", gr))
	}
}
