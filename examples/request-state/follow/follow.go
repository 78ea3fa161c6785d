// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned"
)

// A request that could not be handled is handed over again after a time that doubles
// between these two.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// A Handler is given the name of a request that was added, changed or deleted. Events
// of one request may be joined, so it reads what the request has become. Where it is
// done the following ends with its error; any other error hands the name over again
// later.
type Handler func(ctx context.Context, name string) (done bool, err error)

// A Follower follows the requests of one namespace.
type Follower struct {
	Client    versioned.Interface
	Namespace string
	// Name, if any, is that of the only request to follow.
	Name string
	// Handlers is how many requests are handled at once. No request ever is twice.
	Handlers int
	Handle   Handler
	Log      klog.Logger
}

// Run follows until a handler is done, and returns its error, or until the context
// ends, and returns the context's. Nothing of it runs on.
func (f *Follower) Run(parent context.Context) error {
	ctx, end := context.WithCancel(klog.NewContext(parent, f.Log))
	defer end()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
	informer := cache.NewSharedIndexInformer(f.listWatch(), &v1.RequestState{}, 0, nil)
	if _, err := informer.AddEventHandler(enqueue(queue)); err != nil {
		return err
	}
	if f.Name != "" {
		// One that is gone already is in no event.
		queue.Add(f.Name)
	}

	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	result := make(chan error, 1)
	for range f.Handlers {
		running.Go(func() {
			for f.handleNext(ctx, queue, result) {
			}
		})
	}
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err = ctx.Err()
	}
	end()
	queue.ShutDown()
	running.Wait()
	return err
}

// handleNext returns false when there is nothing more to handle.
func (f *Follower) handleNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], result chan<- error) bool {
	name, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(name)
	// What is still queued at the end is not begun.
	if ctx.Err() != nil {
		return false
	}
	done, err := f.Handle(ctx, name)
	switch {
	case done:
		select {
		case result <- err:
		default: // another one was the first
		}
		return false
	case ctx.Err() != nil:
		return false
	case err != nil:
		f.Log.Error(err, "Trying again later")
		queue.AddRateLimited(name)
	default:
		queue.Forget(name)
	}
	return true
}

func (f *Follower) listWatch() cache.ListerWatcher {
	requests := f.Client.ComV1().RequestStates(f.Namespace)
	narrow := func(opts metav1.ListOptions) metav1.ListOptions {
		if f.Name != "" {
			opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.Name).String()
		}
		return opts
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return requests.List(ctx, narrow(opts))
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return requests.Watch(ctx, narrow(opts))
		},
	}, f.Client)
}

func enqueue(queue workqueue.TypedInterface[string]) cache.ResourceEventHandler {
	add := func(object any) {
		// It fails for what is no object, which a typed client does not deliver.
		if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
			queue.Add(name.Name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: add,
	}
}
