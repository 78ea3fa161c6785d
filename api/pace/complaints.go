// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// complaintBurst and complaintEvery bound the lines that a log gets of what one
	// cluster sent.
	complaintBurst = 10
	complaintEvery = 10 * time.Second
	// fewClusters is the number of clusters up to which none is dropped.
	fewClusters = 1000
)

// Complaints bounds what is logged of the mistakes of clusters: one that makes
// mistakes without end must not fill the hub's log. It is safe for concurrent use; the
// zero value is ready.
type Complaints struct {
	mu       sync.Mutex
	clusters map[string]*rate.Limiter // guarded by mu
}

// Allow tells whether another mistake of a cluster may be logged.
func (c *Complaints) Allow(cluster string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, ok := c.clusters[cluster]
	if !ok {
		limit = rate.NewLimiter(rate.Every(complaintEvery), complaintBurst)
		c.add(cluster, limit)
	}
	return limit.Allow()
}

// add drops those that have been quiet when there are many; c.mu is held.
func (c *Complaints) add(cluster string, limit *rate.Limiter) {
	if c.clusters == nil {
		c.clusters = map[string]*rate.Limiter{}
	}
	if len(c.clusters) >= fewClusters {
		maps.DeleteFunc(c.clusters, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= complaintBurst })
	}
	c.clusters[cluster] = limit
}
