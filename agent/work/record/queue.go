// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxRecorders bounds how many anchors of the queue are brought up to date at once:
	// nobody waits for that, and works do for their executors.
	maxRecorders = 4
	// RecordRate is how many works a second are recorded before the hub is told of
	// them, after the first RecordBurst. The rest of a burst is put off.
	RecordRate = 20
	// RecordBurst is how many works are recorded at once at first.
	RecordBurst = 32
	// minQuiet, and quietPerWork for each work of the queue, is how long none must be
	// put off for a burst to be over; maxQuiet is always enough, and after maxWait the
	// queue no longer waits for that.
	maxQuiet     = 2 * time.Second
	maxWait      = 30 * time.Second
	minQuiet     = 100 * time.Millisecond
	quietPerWork = 10 * time.Millisecond
)

// Queue holds the works of a burst whose anchors do not yet say what became of
// what they list. An anchor lists an object before it is applied, so nothing is lost
// with the backlog; only the object's UID is missing, which the next start learns
// from its own apply. In a burst that write would be one in three of the spoke's.
type Queue struct {
	changed chan struct{}
	// slots has a token for each work that is being recorded.
	slots   chan struct{}
	limiter *rate.Limiter

	mu sync.Mutex
	// All below are guarded by mu. behind is to be recorded, turns is about to be.
	pending, started map[string]struct{}
	// lastAdded is when a work was last put off.
	lastAdded time.Time
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{
		changed: make(chan struct{}, 1), slots: make(chan struct{}, maxRecorders), limiter: rate.NewLimiter(RecordRate, RecordBurst),
		pending: map[string]struct{}{}, started: map[string]struct{}{},
	}
}

// ShouldDelay tells whether the record of a work is to be put off: there were too many
// works of late.
func (b *Queue) ShouldDelay() bool { return !b.limiter.Allow() }

// Add puts off the record of a work.
func (b *Queue) Add(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending[key] = struct{}{}
	b.lastAdded = time.Now()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// remainingQuiet is how long a burst will last at least; it is over when that is not positive.
func (b *Queue) remainingQuiet() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	quiet := min(maxQuiet, minQuiet+time.Duration(len(b.pending))*quietPerWork)
	return quiet - time.Since(b.lastAdded)
}

// Remove: the work is no more.
func (b *Queue) Remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, key)
}

// Run queues the works of each burst after its end, a few at a time, until ctx
// ends. Whoever executes one asks begin.
func (b *Queue) Run(ctx context.Context, queue func(key string)) {
	for {
		select {
		case <-b.changed:
		case <-ctx.Done():
			return
		}
		over := b.awaitQuiet(ctx)
		for ctx.Err() == nil {
			select {
			case b.slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			key, ok := b.next()
			if !ok {
				<-b.slots
				break
			}
			queue(key)
			over = over && b.awaitQuiet(ctx) // another burst goes first
		}
	}
}

// awaitQuiet returns at the end of a burst. over is false when the burst goes on for too
// long to be waited for.
func (b *Queue) awaitQuiet(ctx context.Context) (over bool) {
	end := time.Now().Add(maxWait)
	for left := b.remainingQuiet(); left > 0 && ctx.Err() == nil; left = b.remainingQuiet() {
		if left = min(left, time.Until(end)); left <= 0 {
			return false
		}
		sleep(ctx, left)
	}
	return true
}

func (b *Queue) next() (key string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key = range b.pending {
		delete(b.pending, key)
		b.started[key] = struct{}{}
		return key, true
	}
	return "", false
}

// Start tells an execution whether it is the one to record its work. end must follow.
func (b *Queue) Start(key string) (turn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, turn = b.started[key]
	delete(b.started, key)
	return turn
}

// Finish makes room for another.
func (b *Queue) Finish(turn bool) {
	if turn {
		<-b.slots
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
