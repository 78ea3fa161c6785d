// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// logBurst and logEvery bound the lines that a log gets of what one cluster sent.
	logBurst = 10
	logEvery = 10 * time.Second
	// sweepAbove is the number of clusters up to which none is dropped.
	sweepAbove = 1000
)

// LogLimiter bounds what is logged of the mistakes of clusters: one that makes
// mistakes without end must not fill the hub's log. It is safe for concurrent use; the
// zero value is ready.
type LogLimiter struct {
	mu       sync.Mutex
	clusters map[string]*rate.Limiter // guarded by mu
}

// Allow tells whether another mistake of a cluster may be logged.
func (l *LogLimiter) Allow(cluster string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, ok := l.clusters[cluster]
	if !ok {
		limit = rate.NewLimiter(rate.Every(logEvery), logBurst)
		l.add(cluster, limit)
	}
	return limit.Allow()
}

// add drops those that have been quiet when there are many; l.mu is held.
func (l *LogLimiter) add(cluster string, limit *rate.Limiter) {
	if l.clusters == nil {
		l.clusters = map[string]*rate.Limiter{}
	}
	if len(l.clusters) >= sweepAbove {
		maps.DeleteFunc(l.clusters, func(_ string, known *rate.Limiter) bool { return known.Tokens() >= logBurst })
	}
	l.clusters[cluster] = limit
}
