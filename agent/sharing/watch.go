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

// startWatches restarts the watches of the cluster, as the spec says.
func (s *share) startWatches(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.spokeListed, s.definition, s.problem, s.listedNames = false, nil, nil, nil
	other := s.engine.claimObjects(s)
	if s.spec == nil || s.spec.Problem != nil {
		return
	}
	if other != "" {
		s.problem = clusterProblem(syncv1alpha1.ReasonOverlap, "SharedResource %q shares the same objects", other)
		s.requestReport()
		return
	}
	ctx, s.stop = context.WithCancel(ctx)
	f := &clusterWatch{share: s, spec: s.spec, ctx: ctx}
	s.engine.startGoroutine(func() {
		only := fields.OneTermEqualSelector(metav1.ObjectNameField, definitionName(f.spec)).String()
		feed := watcher.NewListWatch(s.engine.cfg.Definitions.Resource(definitions()), func(o *metav1.ListOptions) { o.FieldSelector = only })
		follower := &watcher.Watcher{ListWatch: feed, Handler: &definitionSink{clusterWatch: f}, Log: s.engine.cfg.Logger}
		follower.Run(ctx)
		f.stopObjects()
	})
}

// clusterWatch watches the definition of a share and, while that can be used, its objects. It
// belongs to the goroutine of the definition's watch.
type clusterWatch struct {
	share *share
	spec  *wire.Share
	ctx   context.Context
	// cancelObjects ends the watch of the objects, and objectsEnded is closed when it has
	// ended; nil when none runs.
	cancelObjects context.CancelFunc
	objectsEnded  chan struct{}
}

// stopObjects ends the watch of the objects and waits for that.
func (f *clusterWatch) stopObjects() {
	if f.cancelObjects != nil {
		f.cancelObjects()
		<-f.objectsEnded
		f.cancelObjects = nil
	}
}

// setDefinition has the objects watched while their definition can be used.
func (f *clusterWatch) setDefinition(d *definition, problem *wire.ShareProblem) {
	s := f.share
	s.mu.Lock()
	if f.ctx.Err() != nil { // another watch has begun
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
		s.spokeListed = false
		s.resetDeletionEvidence()
		if f.cancelObjects != nil {
			f.cancelObjects() // while the share is locked: no event comes after the problem
		}
	}
	s.requestReport()
	s.mu.Unlock()
	f.stopObjects()
	if problem == nil {
		f.watchObjects()
	}
}

func (f *clusterWatch) watchObjects() {
	ctx, cancel := context.WithCancel(f.ctx)
	f.cancelObjects, f.objectsEnded = cancel, make(chan struct{})
	objects := f.share.engine.cfg.Objects.Resource(resourceOf(f.spec)).Namespace(f.spec.SpokeNamespace)
	sink := &objectSink{clusterWatch: f, ctx: ctx}
	feed := watcher.NewListWatch(objects, nil)
	follower := &watcher.Watcher{
		ListWatch: watcher.ListWatch{List: feed.List, Watch: sink.detectResume(feed.Watch)}, Handler: sink, Log: f.share.engine.cfg.Logger,
		IsDenied: func(err error) bool {
			return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
		},
	}
	ended := f.objectsEnded
	run := func() {
		defer close(ended)
		follower.Run(ctx)
	}
	if !f.share.engine.startGoroutine(run) {
		close(ended)
	}
}

// definitionSink receives the definition of a share.
type definitionSink struct {
	*clusterWatch
	// found: the list contains the definition.
	found bool
}

// StartSync begins a list.
func (d *definitionSink) StartSync() { d.found = false }

// FinishSync ends a list.
func (d *definitionSink) FinishSync(string) {
	if !d.found {
		d.setDefinition(nil, d.share.createMissingDefinition(d.ctx, d.spec))
	}
}

// HandleEvent handles a change of the definition.
func (d *definitionSink) HandleEvent(obj metav1.Object, deleted bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if deleted {
		d.setDefinition(nil, d.share.createMissingDefinition(d.ctx, d.spec))
		return
	}
	d.found = true
	d.setDefinition(parseDefinition(u, d.spec))
}

// HandleDenied handles an error for which definitions cannot be read.
func (d *definitionSink) HandleDenied(err error) {
	d.setDefinition(nil, clusterProblem(syncv1alpha1.ReasonRightsMissing, "definitions cannot be read: %v", err))
}

// objectSink receives the objects of a share.
type objectSink struct {
	*clusterWatch
	ctx context.Context
	// refused: the last request was refused.
	refused bool
}

// detectResume wraps a watch function: a watch that continues after a refusal resumes the
// share.
func (o *objectSink) detectResume(begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, options)
		if err == nil && o.refused && options.ResourceVersion != "" {
			o.refused = false
			o.share.resume(o.ctx)
		}
		return w, err
	}
}

// StartSync begins a list.
func (o *objectSink) StartSync() { o.share.beginList(o.ctx) }

// FinishSync ends a list.
func (o *objectSink) FinishSync(version string) {
	o.refused = false
	if o.share.endList(o.ctx, version) {
		return
	}
	// The cluster was restored from a backup: the known versions are newer than its own, so
	// that all is listed once more.
	o.share.engine.startShare(o.share)
}

// HandleEvent handles a change of an object.
func (o *objectSink) HandleEvent(obj metav1.Object, deleted bool) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		o.share.observeSpokeObject(o.ctx, u, deleted)
	}
}

// HandleDenied handles an error for which objects cannot be read.
func (o *objectSink) HandleDenied(err error) {
	o.refused = true
	gr := resourceOf(o.spec).GroupResource().String()
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		o.share.setProblem(o.ctx, clusterProblem(syncv1alpha1.ReasonRightsMissing,
			"%s in namespace %q cannot be read: shared.allow of the agent's chart does not name them, or the namespace does not exist", gr, o.spec.SpokeNamespace))
	case apierrors.IsNotFound(err):
		o.share.setProblem(o.ctx, clusterProblem(syncv1alpha1.ReasonDefinitionNotReady, "%s is not served", gr))
	}
}
