// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ratelimit spaces what spokes have the hub write. A change is written at once
// as long as changes are few; an object that changes without end is written at a
// steady rate, with its latest state, and holds up no other object. The package
// keeps time and does nothing else: queues and writes are their owners'.
package ratelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Burst is how many writes of one object may follow each other at once: more
	// than a rollout of many replicas makes, so that nobody waits for its status.
	Burst = 100
	// PerSecond is how many there may be for as long as the object keeps changing.
	PerSecond = 5
	// bytesPerToken is the size in bytes of what counts as one write: a large object is written
	// less often, because each write costs the API server and etcd as much as many.
	bytesPerToken = 64 << 10
)

// KeyedLimiter has a bucket of tokens for each object. It is safe for concurrent use; the
// zero value is ready. Whoever uses it forgets the objects that are no more.
type KeyedLimiter[K comparable] struct {
	mu      sync.Mutex
	buckets map[K]*rate.Limiter // guarded by mu
}

// Delay returns how long the next write of an object has to wait, 0 when it need
// not. It takes nothing.
func (p *KeyedLimiter[K]) Delay(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	bucket, ok := p.buckets[key]
	if !ok {
		return 0
	}
	return TokenDelay(bucket)
}

// TokenDelay returns how long a bucket needs until it has a token, 0 when it has one. It
// takes nothing. The rate of the bucket must not be 0.
func TokenDelay(bucket *rate.Limiter) time.Duration {
	missing := 1 - bucket.Tokens()
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing*float64(time.Second)/float64(bucket.Limit())) + 1 // never too short
}

// Spend records a write of an object of so many bytes, none where they are few.
func (p *KeyedLimiter[K]) Spend(key K, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bucket, ok := p.buckets[key]
	if !ok {
		if p.buckets == nil {
			p.buckets = map[K]*rate.Limiter{}
		}
		bucket = rate.NewLimiter(PerSecond, Burst)
		p.buckets[key] = bucket
	}
	// A debt, if need be: who has one token may write.
	bucket.ReserveN(time.Now(), min(1+size/bytesPerToken, Burst))
}

// Forget drops what is known of an object.
func (p *KeyedLimiter[K]) Forget(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buckets, key)
}
