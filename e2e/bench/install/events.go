// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var (
	errNoEvent     = errors.New("no event in time")
	errWatchClosed = errors.New("watch was closed")
)

// open watches from now on.
func open(ctx context.Context, of dynamic.ResourceInterface) (<-chan watch.Event, func(), error) {
	list, err := of.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, nil, fmt.Errorf("watch: %w", err)
	}
	// The API server ends a watch that it finds slow; this one goes on from where
	// it was.
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return of.Watch(ctx, options)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watch: %w", err)
	}
	return w.ResultChan(), w.Stop, nil
}

// await reads events until one fits.
func await(events <-chan watch.Event, fits func(watch.Event) bool) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				return errWatchClosed
			}
			if fits(e) {
				return nil
			}
		case <-timeout.C:
			return errNoEvent
		}
	}
}

func is(e watch.Event, name string) bool {
	obj, ok := e.Object.(*unstructured.Unstructured)
	return ok && obj.GetName() == name
}

func hasCondition(e watch.Event, kind, status string) bool {
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == kind {
			return c["status"] == status
		}
	}
	return false
}
