// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	many    = 1000
	writers = 16
)

// bulk compares a thousand works with clients that write the same thousand
// objects straight to the spoke: one with as many writers as create the works,
// which is the baseline, and one that writes them one after the other.
func (s *suite) bulk(ctx context.Context, d dialect) ([]figure.Figure, error) {
	sequential, err := s.bulkDirect(ctx, d.short+"sequential", 1)
	if err != nil {
		return nil, err
	}
	direct, err := s.bulkDirect(ctx, d.short+"direct", writers)
	if err != nil {
		return nil, err
	}
	works, err := s.bulkWorks(ctx, d, d.short+"bulk-", many)
	if err != nil {
		return nil, err
	}
	detail := fmt.Sprintf("%d works available after %s; written directly by %d writers in %s, by one in %s",
		many, works.Round(time.Millisecond), writers, direct.Round(time.Millisecond), sequential.Round(time.Millisecond))
	return []figure.Figure{
		{Name: d.prefix + "work.bulk1000.ratio", Value: works.Seconds() / direct.Seconds(), Unit: "x", Detail: detail},
		{Name: d.prefix + "work.bulk1000.sequential.ratio", Value: works.Seconds() / sequential.Seconds(), Unit: "x", Detail: "the same works, against one writer"},
		{Name: d.prefix + "work.bulk1000.available.s", Value: works.Seconds(), Unit: "s"},
	}, nil
}

// bulkDirect writes the objects themselves, each by server-side apply as the
// agent does.
func (s *suite) bulkDirect(ctx context.Context, prefix string, writers int) (time.Duration, error) {
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	start := time.Now()
	err := parallel(ctx, writers, many, func(ctx context.Context, i int) error {
		obj := &unstructured.Unstructured{Object: newConfigMap(fmt.Sprintf("%s-%d", prefix, i))}
		_, err := maps.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: "bench", Force: true})
		return err
	})
	return time.Since(start), err
}

// bulkWorks creates so many works and returns how long it took until all of them
// were available.
func (s *suite) bulkWorks(ctx context.Context, d dialect, prefix string, count int) (time.Duration, error) {
	events, stop, err := open(ctx, d.on(s.hub))
	if err != nil {
		return 0, err
	}
	defer stop()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- awaitAll(events, prefix, count, conditionTrue("Available")) }()
	err = parallel(ctx, writers, count, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("%s%d", prefix, i)
		return create(ctx, d.on(s.hub), d.work(name, newConfigMap(name)))
	})
	if err != nil {
		return 0, err
	}
	if err := <-done; err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func create(ctx context.Context, in dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	_, err := in.Create(ctx, obj, metav1.CreateOptions{})
	return err
}

// awaitAll reads events until so many objects of a prefix were seen that fit.
func awaitAll(events <-chan watch.Event, prefix string, want int, fits func(watch.Event) bool) error {
	seen := map[string]bool{}
	for len(seen) < want {
		err := await(events, func(e watch.Event) bool {
			obj, ok := e.Object.(*unstructured.Unstructured)
			if !ok || !strings.HasPrefix(obj.GetName(), prefix) || !fits(e) {
				return false
			}
			seen[obj.GetName()] = true
			return true
		})
		if err != nil {
			return fmt.Errorf("after %d of them: %w", len(seen), err)
		}
	}
	return nil
}

// clear deletes the works of a dialect and waits until they are gone. It has no
// figure.
func (s *suite) clear(ctx context.Context, d dialect) ([]figure.Figure, error) {
	list, err := d.on(s.hub).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, stop, err := open(ctx, d.on(s.hub))
	if err != nil {
		return nil, err
	}
	defer stop()
	done := make(chan error, 1)
	go func() {
		var err error
		for left := len(list.Items); left > 0 && err == nil; left-- {
			err = await(events, func(e watch.Event) bool { return e.Type == watch.Deleted })
		}
		done <- err
	}()
	if err := d.on(s.hub).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return nil, err
	}
	return nil, <-done
}

// parallel runs do for each index below count with so many writers.
func parallel(ctx context.Context, writers, count int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range writers {
		workers.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < count && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
