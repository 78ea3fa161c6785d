// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// recorders bounds how many anchors of the backlog are brought up to date at once:
	// nobody waits for that, and works do for their executors.
	recorders = 4
	// recordRate is how many works a second are recorded before the hub is told of
	// them, after the first freeRecords. The rest of a burst is put off.
	recordRate  = 20
	freeRecords = 32
	// firstQuiet, and moreQuiet for each work of the backlog, is how long none must be
	// put off for a burst to be over; settleTime is always enough.
	firstQuiet = 100 * time.Millisecond
	moreQuiet  = 10 * time.Millisecond
)

// backlog holds the works of a burst whose anchors do not yet say what became of
// what they list. An anchor lists an object before it is applied, so nothing is lost
// with the backlog; only the object's UID is missing, which the next start learns
// from its own apply. In a burst that write would be one in three of the spoke's.
type backlog struct {
	changed chan struct{}
	// room has a token for each work that is being recorded.
	room  chan struct{}
	spare *rate.Limiter

	mu sync.Mutex
	// All below are guarded by mu. behind is to be recorded, turns is about to be.
	behind, turns map[string]struct{}
	// last is when a work was last put off.
	last time.Time
}

func newBacklog() *backlog {
	return &backlog{
		changed: make(chan struct{}, 1), room: make(chan struct{}, recorders), spare: rate.NewLimiter(recordRate, freeRecords),
		behind: map[string]struct{}{}, turns: map[string]struct{}{},
	}
}

// delays tells whether the record of a work is to be put off: there were too many
// works of late.
func (b *backlog) delays() bool { return !b.spare.Allow() }

// add puts off the record of a work.
func (b *backlog) add(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind[key] = struct{}{}
	b.last = time.Now()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// lasts is how long a burst will last at least; it is over when that is not positive.
func (b *backlog) lasts() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	quiet := min(settleTime, firstQuiet+time.Duration(len(b.behind))*moreQuiet)
	return quiet - time.Since(b.last)
}

// forget: the work is no more.
func (b *backlog) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.behind, key)
}

// run queues the works of each burst after its end, a few at a time, until ctx
// ends. Whoever executes one asks begin.
func (b *backlog) run(ctx context.Context, queue func(key string)) {
	for {
		select {
		case <-b.changed:
		case <-ctx.Done():
			return
		}
		over := b.awaitQuiet(ctx)
		for ctx.Err() == nil {
			select {
			case b.room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			key, ok := b.next()
			if !ok {
				<-b.room
				break
			}
			queue(key)
			over = over && b.awaitQuiet(ctx) // another burst goes first
		}
	}
}

// awaitQuiet returns at the end of a burst. over is false when the burst goes on for too
// long to be waited for.
func (b *backlog) awaitQuiet(ctx context.Context) (over bool) {
	end := time.Now().Add(longestBurst)
	for left := b.lasts(); left > 0 && ctx.Err() == nil; left = b.lasts() {
		if left = min(left, time.Until(end)); left <= 0 {
			return false
		}
		sleep(ctx, left)
	}
	return true
}

func (b *backlog) next() (key string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key = range b.behind {
		delete(b.behind, key)
		b.turns[key] = struct{}{}
		return key, true
	}
	return "", false
}

// begin tells an execution whether it is the one to record its work. end must follow.
func (b *backlog) begin(key string) (turn bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, turn = b.turns[key]
	delete(b.turns, key)
	return turn
}

// end makes room for another.
func (b *backlog) end(turn bool) {
	if turn {
		<-b.room
	}
}
