// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"sync"
)

// A group runs a goroutine for each key of a set that changes.
type group struct {
	parent  context.Context
	cancels map[string]context.CancelFunc
	running sync.WaitGroup
}

func newGroup(parent context.Context) *group {
	return &group{parent: parent, cancels: map[string]context.CancelFunc{}}
}

// set starts what is missing and ends the context of what is too much. It is called by one
// goroutine at a time.
func (g *group) set(keys []string, run func(ctx context.Context, key string)) {
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
		if g.cancels[key] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(g.parent)
		g.cancels[key] = cancel
		g.running.Go(func() { run(ctx, key) })
	}
	for key, cancel := range g.cancels {
		if !wanted[key] {
			cancel()
			delete(g.cancels, key)
		}
	}
}

// wait ends all, and returns when they have ended.
func (g *group) wait() {
	for _, cancel := range g.cancels {
		cancel()
	}
	g.running.Wait()
}
