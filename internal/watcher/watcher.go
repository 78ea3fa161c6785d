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
	// minWatchTimeout is the shortest time after which the API server ends a watch; up
	// to as much again is added, so that watches do not end together.
	minWatchTimeout = 5 * time.Minute
	// Pause between attempts: from the first to the longest, with jitter.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 30 * time.Second
	// stableAfter is how long a watch lives that counts as a good one.
	stableAfter = 5 * time.Second
)

// errExpired: the version to resume from is no longer kept by the API server.
var errExpired = errors.New("resource version expired")

// ListWatch is what is followed; selectors are its own.
type ListWatch struct {
	List  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	Watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Handler handles what a Watcher sees, on one goroutine.
type Handler interface {
	// HandleEvent tells what an object is now, or was when it was deleted.
	HandleEvent(obj metav1.Object, deleted bool)
	// StartSync and End enclose the initial events of a fresh start; End names the
	// version they were taken at. A start that fails has no End, and is begun again.
	StartSync()
	FinishSync(version string)
	// HandleDenied: the API server does not let us watch, for now.
	HandleDenied(err error)
}

// Watcher keeps a sink up to date.
type Watcher struct {
	ListWatch ListWatch
	Handler   Handler
	// CopyObjects is for a sink that keeps objects: it gets a copy of what was listed in
	// pages, for who points into a page keeps all of it.
	CopyObjects bool
	// IsDenied tells an answer that the sink is told of as refused; without it those
	// that deny the right.
	IsDenied func(error) bool
	// Log is told of watches that end early, at level 1; the zero value is silent.
	Log logr.Logger

	// version to resume from; empty starts afresh.
	version string
	// paged is set when the API server does not stream lists.
	paged bool
}

// Run follows until ctx ends. It is called once.
func (f *Watcher) Run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		started := time.Now()
		err := f.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errExpired) {
			f.version = ""
		}
		if err == nil && time.Since(started) >= stableAfter {
			failures = 0
			continue
		}
		if f.isDenied(err) {
			f.Handler.HandleDenied(err)
		}
		f.Log.V(1).Info("watch ended early", "err", err)
		sleepBackoff(ctx, failures)
		failures++
	}
}

func (f *Watcher) isDenied(err error) bool {
	if f.IsDenied != nil {
		return f.IsDenied(err)
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// watchOnce runs one watch, after a fresh start where that is needed.
func (f *Watcher) watchOnce(ctx context.Context) error {
	if f.version == "" && f.paged {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	fresh := f.version == ""
	w, err := f.ListWatch.Watch(ctx, f.watchOptions(fresh))
	if fresh && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		f.paged = true
		return f.watchOnce(ctx)
	}
	if err != nil {
		return wrapExpired(err)
	}
	defer w.Stop()
	defer context.AfterFunc(ctx, w.Stop)() // not every watch ends with its context
	if fresh {
		f.Handler.StartSync()
	}
	for e := range w.ResultChan() {
		if err := f.handleEvent(e, &fresh); err != nil {
			return err
		}
	}
	if fresh {
		return errors.New("watch ended before its initial events did")
	}
	return nil
}

func (f *Watcher) watchOptions(fresh bool) metav1.ListOptions {
	life := int64((minWatchTimeout + rand.N(minWatchTimeout)).Seconds()) //nolint:gosec // spreads load, guards nothing
	o := metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &life, ResourceVersion: f.version}
	if fresh {
		o.SendInitialEvents, o.ResourceVersionMatch = new(true), metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}

func (f *Watcher) handleEvent(e watch.Event, fresh *bool) error {
	if e.Type == watch.Error {
		return wrapExpired(apierrors.FromObject(e.Object))
	}
	obj, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("watch event: %w", err)
	}
	version := obj.GetResourceVersion()
	if e.Type != watch.Bookmark {
		f.Handler.HandleEvent(obj, e.Type == watch.Deleted)
	}
	if *fresh {
		// Nothing can be resumed before the initial events are complete.
		if e.Type != watch.Bookmark || obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		*fresh = false
		f.Handler.FinishSync(version)
	}
	f.version = version
	return nil
}

// list reads everything page by page.
func (f *Watcher) list(ctx context.Context) error {
	f.Handler.StartSync()
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.ListWatch.List(ctx, o)
		if err != nil {
			return wrapExpired(err)
		}
		if err := meta.EachListItem(page, f.handleItem); err != nil {
			return fmt.Errorf("list item: %w", err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if m.GetContinue() == "" {
			f.version = m.GetResourceVersion()
			f.Handler.FinishSync(f.version)
			return nil
		}
		o.Continue = m.GetContinue()
	}
}

func (f *Watcher) handleItem(object runtime.Object) error {
	if f.CopyObjects {
		object = object.DeepCopyObject()
	}
	obj, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	f.Handler.HandleEvent(obj, false)
	return nil
}

// wrapExpired maps the API server's ways to say so to one sentinel.
func wrapExpired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return fmt.Errorf("%w: %w", errExpired, err)
	}
	return err
}

// sleepBackoff waits before another attempt, or until the end of ctx.
func sleepBackoff(ctx context.Context, failures int) {
	d := maxBackoff
	if failures < 20 {
		d = min(minBackoff<<failures, maxBackoff)
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1)) //nolint:gosec // spreads load, guards nothing
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
