// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// await returns nil when done says so of the objects that are there, by name or, in
// namespaces, by namespace/name. It lists them, then follows their changes; ctx bounds the whole. The error wraps
// errTimeout when ctx has run out of time.
func await(ctx context.Context, hub client.WithWatch, list client.ObjectList, done func(present map[string]client.Object) bool, options ...client.ListOption) error {
	for {
		finished, err := follow(ctx, hub, list, done, options)
		if finished {
			return nil
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errTimeout
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// An expired or closed watch begins again with a list.
		if err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return err
		}
	}
}

func follow(ctx context.Context, hub client.WithWatch, list client.ObjectList, done func(map[string]client.Object) bool, options []client.ListOption) (bool, error) {
	if err := hub.List(ctx, list, options...); err != nil {
		return false, err
	}
	present := map[string]client.Object{}
	items, err := meta.ExtractList(list)
	if err != nil {
		return false, err
	}
	for _, item := range items {
		if object, ok := item.(client.Object); ok {
			present[nameOf(object)] = object
		}
	}
	if done(present) {
		return true, nil
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	stream, err := hub.Watch(ctx, list, append(slices.Clip(options), from)...)
	if err != nil {
		return false, err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if err := note(present, event); err != nil {
			return false, err
		}
		if done(present) {
			return true, nil
		}
	}
	return false, nil
}

func note(present map[string]client.Object, event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, ok := event.Object.(client.Object)
	if !ok {
		return fmt.Errorf("watch: unexpected %T", event.Object)
	}
	if event.Type == watch.Deleted {
		delete(present, nameOf(object))
		return nil
	}
	present[nameOf(object)] = object
	return nil
}

// nameOf is the name of an object among those of its kind, with its namespace if it
// has one.
func nameOf(object client.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
