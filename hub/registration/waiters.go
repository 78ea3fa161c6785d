// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "sync"

// waiters are the enrolments that wait for their record to change, at most one
// for each cluster.
type waiters struct {
	mu      sync.Mutex
	waiting map[string]*waiter // guarded by mu
}

type waiter struct {
	changed  chan struct{} // holds at most one notification; the waiter reads what changed
	replaced chan struct{} // closed by the one who takes the place
}

func newWaiters() *waiters { return &waiters{waiting: map[string]*waiter{}} }

// enter takes the place of a cluster. The earlier waiter is replaced: most
// often the connection behind it is dead, and the agent is asking again.
func (w *waiters) enter(cluster string) (*waiter, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.waiting[cluster]; ok {
		close(before.replaced)
	}
	mine := &waiter{changed: make(chan struct{}, 1), replaced: make(chan struct{})}
	w.waiting[cluster] = mine
	return mine, func() { w.leave(cluster, mine) }
}

func (w *waiters) leave(cluster string, mine *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[cluster] == mine {
		delete(w.waiting, cluster)
	}
}

func (w *waiters) wake(cluster string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiting, ok := w.waiting[cluster]; ok {
		select {
		case waiting.changed <- struct{}{}:
		default:
		}
	}
}
