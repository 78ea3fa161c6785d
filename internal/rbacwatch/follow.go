// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

const (
	// watchLife is the shortest time after which the API server ends a watch; up
	// to as much again is added, so that watches do not end together.
	watchLife = 5 * time.Minute
	// Pause between attempts, doubled from the first to the longest.
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	// steadyAfter is how long a watch lives that ended in its time.
	steadyAfter = 5 * time.Second
)

var (
	errWatch = errors.New("watch failed")
	errShort = errors.New("watch ended at once")
)

// sources are the kinds that rights come from.
func sources() []string {
	return []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
}

// Everywhere is the namespace of a change that counts in all of them.
const Everywhere = ""

// Sink learns of changes, from several goroutines.
type Sink interface {
	// Lost and Found count the watches that do not see what changes: each is Lost before
	// Follow returns, and Found when it sees. What changed in between, nobody knows.
	Lost()
	Found()
	// Changed: rights changed, or may have, in a namespace or Everywhere.
	Changed(namespace string)
}

// Follow watches everything that rights come from, until stop is called.
func Follow(client metadata.Interface, sink Sink, log logr.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, name := range sources() {
		sink.Lost()
		w := &watcher{
			resource: client.Resource(rbacv1.SchemeGroupVersion.WithResource(name)),
			sink:     sink, log: log.WithValues("resource", name),
		}
		running.Go(func() { w.run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// watcher follows one kind from the present on: what there is tells nothing, so
// it is neither read nor kept.
type watcher struct {
	resource metadata.Getter
	sink     Sink
	log      logr.Logger
	// version to resume from; empty begins with the present one.
	version string
	// sees is set while the sink counts on this watch.
	sees bool
}

func (w *watcher) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := w.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && time.Since(began) >= steadyAfter:
			failures = 0
			continue
		case err == nil:
			err = errShort
		}
		w.blind()
		if failures == 0 {
			w.log.Info("changes of rights are not seen: roles and bindings cannot be watched", "err", err.Error())
		}
		pause(ctx, failures)
		failures++
	}
}

// blind says that nothing is seen, and has the next watch begin with the present.
func (w *watcher) blind() {
	w.version = ""
	if w.sees {
		w.sees = false
		w.sink.Lost()
	}
}

// pass is the life of one watch. It returns nil if the watch ended in time.
func (w *watcher) pass(ctx context.Context) error {
	if w.version == "" {
		present, err := w.resource.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		w.version = present.ResourceVersion
	}
	life := int64((watchLife + rand.N(watchLife)).Seconds()) //nolint:gosec // spreads load, guards nothing
	stream, err := w.resource.Watch(ctx, metav1.ListOptions{ResourceVersion: w.version, AllowWatchBookmarks: true, TimeoutSeconds: &life})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer stream.Stop()
	if !w.sees {
		w.sees = true
		w.sink.Found()
		w.sink.Changed(Everywhere) // maybe, while nobody watched
	}
	for event := range stream.ResultChan() {
		if err := w.take(event); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) take(event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("%w: %w", errWatch, apierrors.FromObject(event.Object))
	}
	obj, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errWatch, err)
	}
	w.version = obj.GetResourceVersion()
	if event.Type != watch.Bookmark {
		w.sink.Changed(obj.GetNamespace())
	}
	return nil
}

// pause waits before another attempt; half of the time is random.
func pause(ctx context.Context, failures int) {
	d := longestPause
	if failures < 16 {
		d = min(d, firstPause<<failures)
	}
	timer := time.NewTimer(d/2 + rand.N(d/2)) //nolint:gosec // spreads load, guards nothing
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
