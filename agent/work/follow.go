// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

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
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// scope is what one watch covers.
type scope struct {
	schema.GroupVersionResource
	namespace string
	// complete asks for the content of kinds that are watched as metadata else.
	complete bool
}

func scopeOf(t target) scope { return scope{GroupVersionResource: t.gvr(), namespace: t.Namespace} }

func (s scope) id(obj metav1.Object) objectID {
	return objectID{Group: s.Group, Resource: s.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// lister reads the objects of a scope; the spoke's clients do.
type lister interface {
	List(ctx context.Context, s scope, o metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, s scope, o metav1.ListOptions) (watch.Interface, error)
}

// sink is told what a follower sees.
type sink interface {
	// event tells what an object is now, or was when it was deleted.
	event(s scope, obj metav1.Object, deleted bool)
	// begin and end enclose the initial events of a fresh start; end names the
	// version they were taken at.
	begin(s scope)
	end(s scope, version string)
	// refused: the API server does not let us watch, for now.
	refused(s scope, err error)
}

// follower keeps one scope's sink up to date until its context ends. It holds no
// object: the initial state is streamed, or read in pages, straight into the sink.
type follower struct {
	scope  scope
	lister lister
	sink   sink
	log    logr.Logger

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
		if refusal(err) {
			f.sink.refused(f.scope, err)
		}
		f.log.V(1).Info("watch ended early", "resource", f.scope.String(), "namespace", f.scope.namespace, "err", err)
		sleep(ctx, backoff(failures, firstPause, longestPause))
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
	w, err := f.lister.Watch(ctx, f.scope, f.options(fresh))
	if fresh && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
		f.paged = true
		return f.pass(ctx)
	}
	if err != nil {
		return expired(err)
	}
	defer w.Stop()
	if fresh {
		f.sink.begin(f.scope)
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
		initial := true
		o.SendInitialEvents, o.ResourceVersionMatch = &initial, metav1.ResourceVersionMatchNotOlderThan
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
	if e.Type != watch.Bookmark {
		f.sink.event(f.scope, obj, e.Type == watch.Deleted)
	}
	if *fresh {
		// Nothing can be resumed before the initial events are complete.
		if e.Type != watch.Bookmark || obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			return nil
		}
		*fresh = false
		f.sink.end(f.scope, obj.GetResourceVersion())
	}
	f.version = obj.GetResourceVersion()
	return nil
}

// list reads the scope page by page.
func (f *follower) list(ctx context.Context) error {
	f.sink.begin(f.scope)
	o := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := f.lister.List(ctx, f.scope, o)
		if err != nil {
			return expired(err)
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error {
			obj, err := meta.Accessor(item)
			if err == nil {
				f.sink.event(f.scope, obj, false)
			}
			return err
		}); err != nil {
			return fmt.Errorf("list item: %w", err)
		}
		m, err := meta.ListAccessor(page)
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if m.GetContinue() == "" {
			f.version = m.GetResourceVersion()
			f.sink.end(f.scope, f.version)
			return nil
		}
		o.Continue = m.GetContinue()
	}
}

// expired maps the API server's ways to say so to one sentinel.
func expired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return fmt.Errorf("%w: %w", errExpired, err)
	}
	return err
}

// refusal tells an answer that waiting will not change from a fault on the way.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// backoff grows from first to longest and is never the same twice.
func backoff(failures int, first, longest time.Duration) time.Duration {
	d := longest
	if failures < 20 {
		d = min(first<<failures, longest)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
