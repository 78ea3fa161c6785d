// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var (
	errNoEvent     = errors.New("no event in time")
	errWatchClosed = errors.New("watch was closed")
)

// open watches from now on. The API server ends a watch that it finds slow; this
// one goes on at once from where it was, where client-go's RetryWatcher would see
// nothing for a second, which the figures would show as ours.
func open(ctx context.Context, of dynamic.ResourceInterface) (<-chan watch.Event, func(), error) {
	list, err := of.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, nil, fmt.Errorf("watch: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	events := make(chan watch.Event)
	go func() {
		defer close(events)
		for version := list.GetResourceVersion(); version != ""; {
			w, err := of.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				return
			}
			version = forward(ctx, w, events, version)
		}
	}()
	return events, stop, nil
}

// forward passes on the events of one watch and returns the version it got to,
// none when nothing can follow.
func forward(ctx context.Context, w watch.Interface, to chan<- watch.Event, version string) string {
	defer w.Stop()
	for e := range w.ResultChan() {
		obj, err := meta.Accessor(e.Object)
		if err != nil {
			return "" // the API server's last word is a Status
		}
		version = obj.GetResourceVersion()
		select {
		case to <- e:
		case <-ctx.Done():
			return ""
		}
	}
	return version
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

func conditionTrue(kind string) func(watch.Event) bool {
	return func(e watch.Event) bool { return hasCondition(e, kind, "True") }
}
