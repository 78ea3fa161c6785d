// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
)

// Queue has the works whose status is to be written, with the latest report on each. A
// report on a work replaces the one before it that was not written.
type Queue struct {
	workqueue.TypedRateLimitingInterface[wire.WorkKey]

	// Limiter spaces the writes to a work that changes without end.
	Limiter ratelimit.KeyedLimiter[wire.WorkKey]
	Metrics *Metrics

	log     logr.Logger
	mu      sync.Mutex
	pending map[wire.WorkKey]Report // guarded by mu
}

// NewQueue returns an empty Queue.
func NewQueue(m *Metrics, log logr.Logger) *Queue {
	return &Queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[wire.WorkKey]()),
		Metrics:                    m, log: log, pending: map[wire.WorkKey]Report{},
	}
}

// Enqueue stores a report in place of the pending one.
func (q *Queue) Enqueue(key wire.WorkKey, r Report) {
	r.Received = time.Now()
	q.mu.Lock()
	replaced := q.pending[key]
	r.inheritSince(replaced)
	q.pending[key] = r
	q.mu.Unlock()
	replaced.Done()
	q.Add(key)
}

// Pending returns the report on a work that is to be written.
func (q *Queue) Pending(key wire.WorkKey) (Report, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.pending[key]
	return r, ok
}

// Take removes the report on a work, and returns it.
func (q *Queue) Take(key wire.WorkKey) (Report, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r, ok := q.pending[key]
	delete(q.pending, key)
	return r, ok
}

// DeleteFunc removes the reports on the works for which del returns true.
func (q *Queue) DeleteFunc(del func(wire.WorkKey) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.pending, func(key wire.WorkKey, _ Report) bool { return del(key) })
}

// PendingCount returns the number of reports that are to be written.
func (q *Queue) PendingCount() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// Retry has a work written again after an error.
func (q *Queue) Retry(key wire.WorkKey, err error) {
	q.AddRateLimited(key)
	q.Metrics.CountWrite(ResultError)
	q.log.V(1).Info("status is written again", "work", key.String(), "err", err.Error())
}

// RetryReport is Retry, with a report that was taken. It yields to a later one.
func (q *Queue) RetryReport(key wire.WorkKey, r Report, err error) {
	q.restore(key, r)
	q.Retry(key, err)
}

func (q *Queue) restore(key wire.WorkKey, r Report) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if later, ok := q.pending[key]; ok {
		later.inheritSince(r)
		r.Done()
		r = later
	}
	q.pending[key] = r
}

// Write calls write with a report, and with less of it while the API server refuses it. A
// report of which the API server takes nothing is dropped: the next one may be better. Of
// errors that the same report would meet again logRefusal is called.
func (q *Queue) Write(r Report, write func(Report) error, logRefusal func(error)) error {
	for {
		err := write(r)
		isRefused := IsRefused(err)
		if isRefused || apierrors.IsForbidden(err) {
			logRefusal(err)
		}
		if !isRefused || r.Status.Finalized {
			return err
		}
		q.Metrics.CountWrite(ResultRefused)
		rest, ok := r.Reduce(err)
		if !ok {
			return nil
		}
		r = rest
	}
}

// Run calls handle for the works in a queue, with a number of workers, until ctx ends.
func Run(ctx context.Context, q workqueue.TypedRateLimitingInterface[wire.WorkKey], workers int, handle func(context.Context, wire.WorkKey)) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for HandleNext(ctx, q, handle) {
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	running.Wait()
}

// HandleNext calls handle for one work. It returns false once the queue is shut down.
func HandleNext(ctx context.Context, q workqueue.TypedRateLimitingInterface[wire.WorkKey], handle func(context.Context, wire.WorkKey)) bool {
	key, isShutDown := q.Get()
	if isShutDown {
		return false
	}
	defer q.Done(key)
	handle(ctx, key)
	return true
}

// NewStatusPatch returns the merge patch from one status to another, for the work as it was
// read and no other. Numbers stay as they are written: as float64 an integer of
// feedback would be another, or none that the API server takes.
func NewStatusPatch(work metav1.Object, before, after any) ([]byte, error) {
	old, err := json.Marshal(map[string]any{"status": before})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	next, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": work.GetUID(), "resourceVersion": work.GetResourceVersion()}, "status": after,
	})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(old, next)
	if err != nil {
		return nil, fmt.Errorf("compare statuses: %w", err)
	}
	return patch, nil
}
