// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// FeedOf is the list and the watch of a resource, of the objects that a field selector
// selects; an empty one selects all.
func FeedOf(of dynamic.ResourceInterface, fieldSelector string) Feed {
	return Feed{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fieldSelector
			return of.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fieldSelector
			return of.Watch(ctx, o)
		},
	}
}
