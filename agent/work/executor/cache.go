// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

const (
	// maxAge bounds how long a permission is cached, whatever the watches report.
	maxAge = 10 * time.Minute
	// maxEntries bounds the cached permissions.
	maxEntries = 10000
	// cacheSettle is how long after a change nothing is cached: the API server
	// answers from caches of its own, which may not have the change yet, on a busy
	// machine for seconds. A wrong answer would be cached for maxAge.
	cacheSettle = 10 * time.Second
)

// allowedCache caches permissions. A nil cache is always empty.
type allowedCache struct {
	mu sync.Mutex
	// All below are guarded by mu.
	expires map[cacheKey]time.Time
	// lostWatches counts the watches that are not established.
	lostWatches int
	// changedAt is when roles or bindings last changed, or may have changed unobserved.
	changedAt time.Time
	// changes counts the changes of roles and bindings.
	changes uint64
	// cleanedAt is when expired entries were last removed.
	cleanedAt time.Time
}

// A moment says when a question was asked; the zero moment is never remembered.
type ticket struct {
	valid   bool
	changes uint64
}

func newAllowedCache() *allowedCache { return &allowedCache{expires: map[cacheKey]time.Time{}} }

// lookup tells whether k is known to be allowed, and the moment otherwise.
func (m *allowedCache) lookup(k cacheKey) (ticket, bool) {
	if m == nil {
		return ticket{}, false
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lostWatches > 0 {
		return ticket{}, false
	}
	m.removeExpired(now)
	if until, ok := m.expires[k]; ok && now.Before(until) {
		return ticket{}, true
	}
	return ticket{valid: now.Sub(m.changedAt) >= cacheSettle, changes: m.changes}, false
}

// add caches the permission k, unless rights have changed since lookup.
func (m *allowedCache) add(asked ticket, k cacheKey) {
	if m == nil || !asked.valid {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changes != asked.changes {
		return
	}
	if len(m.expires) >= maxEntries {
		clear(m.expires)
	}
	m.expires[k] = time.Now().Add(maxAge)
}

// removeExpired removes expired entries. The caller holds m.mu.
func (m *allowedCache) removeExpired(now time.Time) {
	if now.Sub(m.cleanedAt) < maxAge {
		return
	}
	m.cleanedAt = now
	for k, until := range m.expires {
		if !now.Before(until) {
			delete(m.expires, k)
		}
	}
}

// invalidate removes what a role or binding of a namespace may have permitted.
func (m *allowedCache) invalidate(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	m.changedAt = time.Now()
	if namespace == rbacwatch.AllNamespaces {
		clear(m.expires)
		return
	}
	for k := range m.expires {
		if k.objectNamespace == namespace {
			delete(m.expires, k)
		}
	}
}

// countLostWatch counts a watch that is not established, yet or any more.
func (m *allowedCache) countLostWatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lostWatches++
	m.changes++
	clear(m.expires)
}

// countFoundWatch counts an established watch.
func (m *allowedCache) countFoundWatch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lostWatches--
	m.changedAt = time.Now()
}

// isWatching reports whether every watch is established.
func (m *allowedCache) isWatching() bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lostWatches == 0
}

// lastChange is zero before the first.
func (m *allowedCache) lastChange() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changedAt
}
