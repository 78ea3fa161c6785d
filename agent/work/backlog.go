// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"sync"
)

// recorders bounds how many anchors are brought up to date at once: nobody waits
// for that, and works do for their executors.
const recorders = 4

// backlog holds the works whose anchors do not yet say what became of what they
// list. An anchor lists an object before it is applied, so nothing is lost with
// the backlog; only the object's UID is missing, which the next start learns from
// its own apply. In a burst that write would be one in three of the spoke's.
type backlog struct {
	changed chan struct{}
	// room has a token for each work that is being recorded.
	room chan struct{}

	mu sync.Mutex
	// behind is to be recorded, turns is being recorded now; guarded by mu.
	behind, turns map[string]struct{}
}

func newBacklog() *backlog {
	return &backlog{
		changed: make(chan struct{}, 1), room: make(chan struct{}, recorders),
		behind: map[string]struct{}{}, turns: map[string]struct{}{},
	}
}

// add puts off the record of a work.
func (b *backlog) add(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind[key] = struct{}{}
	select {
	case b.changed <- struct{}{}:
	default:
	}
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
		settle(ctx, b.changed)
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
		}
	}
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

// begin tells an execution whether it is the one to record its work; end must
// follow then.
func (b *backlog) begin(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.turns[key]
	delete(b.turns, key)
	return ok
}

// end makes room for another.
func (b *backlog) end() { <-b.room }
