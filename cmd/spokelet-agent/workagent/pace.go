// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// paceBurst is how many statuses of one work may be written at once, and
	// pacePerSecond how many as long as it keeps changing.
	paceBurst     = 100
	pacePerSecond = 5
)

// pacer spaces the statuses of works that change without end, as the hub does for
// its agents. The zero value is ready.
type pacer struct {
	mu      sync.Mutex
	buckets map[wire.WorkKey]*rate.Limiter // guarded by mu
}

// wait returns how long the next write has to wait.
func (p *pacer) wait(key wire.WorkKey) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	bucket, ok := p.buckets[key]
	if !ok {
		return 0
	}
	missing := 1 - bucket.Tokens()
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing*float64(time.Second)/pacePerSecond) + 1 // never too short
}

// spend counts a write.
func (p *pacer) spend(key wire.WorkKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bucket, ok := p.buckets[key]
	if !ok {
		if p.buckets == nil {
			p.buckets = map[wire.WorkKey]*rate.Limiter{}
		}
		bucket = rate.NewLimiter(pacePerSecond, paceBurst)
		p.buckets[key] = bucket
	}
	bucket.Allow()
}

func (p *pacer) forget(key wire.WorkKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.buckets, key)
}
