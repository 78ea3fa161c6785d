// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

const (
	// longestMemory bounds how long a yes is believed, whatever the watches say.
	longestMemory = 10 * time.Minute
	// mostMemories bounds how many are.
	mostMemories = 10000
	// cacheSettle is how long after a change nothing is remembered: the API server
	// answers from caches of its own, which may not have seen the change yet, and on
	// a busy machine for seconds. What is remembered wrongly is for longestMemory.
	cacheSettle = 10 * time.Second
)

// memory holds what was allowed. A nil one holds nothing.
type memory struct {
	mu sync.Mutex
	// All below are guarded by mu.
	until map[key]time.Time
	// blind is the number of watches that have not listed yet, or cannot.
	blind int
	// last is when roles or bindings last changed, or may have unseen.
	last time.Time
	// changes counts the changes of roles and bindings.
	changes uint64
	// swept is when what is too old was last removed.
	swept time.Time
}

// A moment says when a question was asked; the zero moment is never remembered.
type moment struct {
	valid   bool
	changes uint64
}

func newMemory() *memory { return &memory{until: map[key]time.Time{}} }

// recall tells whether k is known to be allowed, and the moment otherwise.
func (m *memory) recall(k key) (moment, bool) {
	if m == nil {
		return moment{}, false
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blind > 0 {
		return moment{}, false
	}
	m.sweep(now)
	if until, ok := m.until[k]; ok && now.Before(until) {
		return moment{}, true
	}
	return moment{valid: now.Sub(m.last) >= cacheSettle, changes: m.changes}, false
}

// remember that k was allowed, unless something has changed since it was asked.
func (m *memory) remember(asked moment, k key) {
	if m == nil || !asked.valid {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != asked.changes {
		return
	}
	if len(m.until) >= mostMemories {
		clear(m.until)
	}
	m.until[k] = time.Now().Add(longestMemory)
}

// sweep removes what is too old; m.mu is held.
func (m *memory) sweep(now time.Time) {
	if now.Sub(m.swept) < longestMemory {
		return
	}
	m.swept = now
	for k, until := range m.until {
		if !now.Before(until) {
			delete(m.until, k)
		}
	}
}

// changed forgets what a role or binding of a namespace may have decided.
func (m *memory) changed(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.last = time.Now()
	if namespace == rbacwatch.Everywhere {
		clear(m.until)
		return
	}
	for k := range m.until {
		if k.objectNamespace == namespace {
			delete(m.until, k)
		}
	}
}

// lose counts a watch that does not see what changes, yet or any more.
func (m *memory) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blind++
	m.changes++
	clear(m.until)
}

// find counts one of them that sees again.
func (m *memory) find() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blind--
	m.last = time.Now()
}

// sees tells whether every watch does.
func (m *memory) sees() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blind == 0
}

// lastChange is zero before the first.
func (m *memory) lastChange() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}
