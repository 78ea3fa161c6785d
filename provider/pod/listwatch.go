// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// firstPause and lastPause are those between attempts at a watch.
const (
	firstPause = 800 * time.Millisecond
	lastPause  = 30 * time.Second
)

// listWatch is how the objects of one kind are listed and watched.
type listWatch struct {
	kind  runtime.Object
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// where selects the objects, by its selectors alone.
	where metav1.ListOptions
}

// reflector keeps a store as the API server has the objects. The name is for its logs.
func (l listWatch) reflector(client kubernetes.Interface, into cache.ReflectorStore, name string) *cache.Reflector {
	selecting := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = l.where.LabelSelector, l.where.FieldSelector
		return o
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return l.list(ctx, selecting(o))
		},
		WatchFuncWithContext: awaken(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return l.watch(ctx, selecting(o))
		}),
	}, client), l.kind, into, cache.ReflectorOptions{Name: name})
}

// consistent has a list answered as of now, where a reflector would take what a cache
// of the API server has: absence is acted upon.
func consistent(o metav1.ListOptions) metav1.ListOptions {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
	return o
}

// awaken has a watch that begins with a list wait here for an API server that is away
// or busy: a reflector would wait itself, for up to a minute, and not see that its
// context has ended.
func awaken(begin cache.WatchFuncWithContext) cache.WatchFuncWithContext {
	return func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
		pauses := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 1, Steps: 10, Cap: lastPause}
		ended := pauses.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			w, err = begin(ctx, o)
			return o.SendInitialEvents == nil || !apierrors.IsTooManyRequests(err) && !utilnet.IsConnectionRefused(err), nil
		})
		if ended != nil {
			return nil, ended
		}
		return w, err
	}
}
