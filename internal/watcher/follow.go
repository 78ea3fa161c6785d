// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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

// Feed is what is followed; selectors are its own.
type Feed struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Sink is told what a follower sees, from one goroutine.
type Sink interface {
	// Event tells what an object is now, or was when it was deleted.
	Event(obj metav1.Object, deleted bool)
	// Begin and End enclose the initial events of a fresh start; End names the
	// version they were taken at. A start that fails has no End, and is begun again.
	Begin()
	End(version string)
	// Refused: the API server does not let us watch, for now.
	Refused(err error)
}

// Follower keeps a sink up to date.
type Follower struct {
	Feed Feed
	Sink Sink
	// Copy is for a sink that keeps objects: it gets a copy of what was listed in
	// pages, for who points into a page keeps all of it.
	Copy bool
	// Refusal tells an answer that the sink is told of as refused; without it those
	// that deny the right.
	Refusal func(error) bool
	// Log is told of watches that end early, at level 1; the zero value is silent.
	Log logr.Logger

	// version to resume from; empty starts afresh.
	version string
	// paged is set when the API server does not stream lists.
	paged bool
}

// Run follows until ctx ends. It is called once.
func (f *Follower) Run(ctx context.Context) {
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
		if f.refusal(err) {
			f.Sink.Refused(err)
		}
		f.Log.V(1).Info("watch ended early", "err", err)
		pause(ctx, failures)
		failures++
	}
}

func (f *Follower) refusal(err error) bool {
	if f.Refusal != nil {
		return f.Refusal(err)
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// pass runs one watch, after a fresh start where that is needed.
func (f *Follower) pass(ctx context.Context) error {
	if f.version == "" && f.paged {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	fresh := f.version == ""
	w, err := f.Feed.Watch(ctx, f.options(fresh))
	if fresh && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		f.paged = true
		return f.pass(ctx)
	}
	if err != nil {
		return expired(err)
	}
	defer w.Stop()
	if fresh {
		f.Sink.Begin()
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

func (f *Follower) options(fresh bool) metav1.ListOptions {
	life := int64((watchLife + rand.N(watchLife)).Seconds()) //nolint:gosec // spreads load, guards nothing
	o := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &life, ResourceVersion: f.version}
	if fresh {
		o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}

func (f *Follower) take(e watch.Event, fresh *bool) error {
	if e.Type == watch.Error {
		return expired(apierrors.FromObject(e.Object))
	}
	obj, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("watch event: %w", err)
	}
	version := obj.GetResourceVersion()
	if e.Type != watch.Bookmark {
		f.Sink.Event(obj, e.Type == watch.Deleted)
	}
	if *fresh {
		// Nothing can be resumed before the initial events are complete.
		if e.Type != watch.Bookmark || obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		*fresh = false
		f.Sink.End(version)
	}
	f.version = version
	return nil
}

// list reads everything page by page.
func (f *Follower) list(ctx context.Context) error {
	f.Sink.Begin()
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.Feed.List(ctx, o)
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
			f.Sink.End(f.version)
			return nil
		}
		o.Continue = m.GetContinue()
	}
}

func (f *Follower) item(object runtime.Object) error {
	if f.Copy {
		object = object.DeepCopyObject()
	}
	obj, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	f.Sink.Event(obj, false)
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
