// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	corev1 "k8s.io/api/core/v1"
)

const (
	// pageSize objects are held at once where the API server cannot stream a list.
	pageSize = 500
	// watchLife is the shortest time after which the API server ends a watch; up
	// to as much again is added, so that watches do not end together.
	watchLife = 5 * time.Minute
	// Pause between attempts: from the first to the longest, with jitter.
	firstPause   = 20 * time.Millisecond
	longestPause = 30 * time.Second
	// steadyAfter is how long a watch lives that counts as a good one.
	steadyAfter = 5 * time.Second
)

// errExpired: the version to resume from is no longer kept by the API server.
var errExpired = errors.New("resource version expired")

// feed is what is watched.
type feed struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// sink is told what a follower sees, from one goroutine.
type sink interface {
	// event tells what an object is now, or was when it was deleted.
	event(obj metav1.Object, deleted bool)
	// begin and end enclose the initial events of a fresh start; end names the
	// version they were taken at.
	begin()
	end(version string)
	// refused: the API server does not let us watch, for now.
	refused(err error)
}

// follow keeps a sink up to date until ctx or the returned stop ends it; stop does
// not wait.
func (e *Engine) follow(ctx context.Context, f feed, s sink) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	e.following.Go(func() {
		defer cancel()
		(&follower{feed: f, sink: s}).run(ctx)
	})
	return cancel
}

// follower holds no object: the initial state is streamed, or read in pages,
// straight into the sink.
type follower struct {
	feed feed
	sink sink

	// version to resume from; empty starts afresh.
	version string
	// paged is set when the API server does not stream lists.
	paged bool
}

func (f *follower) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		err := f.pass(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errExpired) {
			f.version = ""
		}
		if err == nil && time.Since(started) >= steadyAfter {
			failures = 0
			continue
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			f.sink.refused(err)
		}
		pause(ctx, failures)
		failures++
	}
}

// pass runs one watch, after a fresh start where that is needed.
func (f *follower) pass(ctx context.Context) error {
	if f.version == "" && f.paged {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	fresh := f.version == ""
	w, err := f.feed.watch(ctx, f.options(fresh))
	if fresh && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		f.paged = true
		return f.pass(ctx)
	}
	if err != nil {
		return expired(err)
	}
	defer w.Stop()
	if fresh {
		f.sink.begin()
	}
	for e := range w.ResultChan() {
		if err := f.take(e, &fresh); err != nil {
			return err
		}
	}
	if fresh {
		return errors.New("watch ended before its initial events did")
	}
	return nil
}

func (f *follower) options(fresh bool) metav1.ListOptions {
	life := int64((watchLife + rand.N(watchLife)).Seconds()) //nolint:gosec // spreads load, guards nothing
	o := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &life, ResourceVersion: f.version}
	if fresh {
		o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}

func (f *follower) take(e watch.Event, fresh *bool) error {
	if e.Type == watch.Error {
		return expired(apierrors.FromObject(e.Object))
	}
	obj, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("watch event: %w", err)
	}
	version := obj.GetResourceVersion()
	if e.Type != watch.Bookmark {
		f.sink.event(obj, e.Type == watch.Deleted)
	}
	if *fresh {
		// Nothing can be resumed before the initial events are complete.
		if e.Type != watch.Bookmark || obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		*fresh = false
		f.sink.end(version)
	}
	f.version = version
	return nil
}

// list reads everything page by page.
func (f *follower) list(ctx context.Context) error {
	f.sink.begin()
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.feed.list(ctx, o)
		if err != nil {
			return expired(err)
		}
		if err := meta.EachListItem(page, f.item); err != nil {
			return fmt.Errorf("list item: %w", err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if m.GetContinue() == "" {
			f.version = m.GetResourceVersion()
			f.sink.end(f.version)
			return nil
		}
		o.Continue = m.GetContinue()
	}
}

func (f *follower) item(object runtime.Object) error {
	// A copy: what points into a page keeps all of it.
	obj, err := meta.Accessor(object.DeepCopyObject())
	if err != nil {
		return err
	}
	f.sink.event(obj, false)
	return nil
}

// expired maps the API server's ways to say so to one sentinel.
func expired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return fmt.Errorf("%w: %w", errExpired, err)
	}
	return err
}

// pause waits before another attempt, or until the end of ctx.
func pause(ctx context.Context, failures int) {
	d := longestPause
	if failures < 20 {
		d = min(firstPause<<failures, longestPause)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // spreads load, guards nothing
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// podSink feeds the table of pods.
type podSink struct {
	engine *Engine
	seen   map[types.UID]struct{}
}

func (s *podSink) event(obj metav1.Object, deleted bool) {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
	case deleted:
		s.engine.vanish(place{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, pod)
	default:
		if s.seen != nil {
			s.seen[pod.UID] = struct{}{}
		}
		s.engine.observe(pod)
	}
}

func (s *podSink) begin() { s.seen = map[types.UID]struct{}{} }

func (s *podSink) end(version string) {
	s.engine.resync(s.seen, version)
	s.seen = nil
}

// refused is said of the pods too, until they are known.
func (s *podSink) refused(err error) {
	e := s.engine
	e.log.Error(err, "cannot watch the pods of the hub in this cluster")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listed {
		return
	}
	e.blind = err
	for at := range e.entries {
		e.queue.Add(item{place: at})
	}
}
