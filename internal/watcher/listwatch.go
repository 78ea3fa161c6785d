// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package watcher

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// NewListWatch is the list and the watch of a client, of what narrow sets the options to; nil
// leaves them as they are.
func NewListWatch[L runtime.Object](all interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}, narrow func(*metav1.ListOptions),
) ListWatch {
	if narrow == nil {
		narrow = func(*metav1.ListOptions) {}
	}
	return ListWatch{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			return all.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return all.Watch(ctx, o)
		},
	}
}
