// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"cmp"
	"context"
	"sync"
)

// A group runs a goroutine for each key of a set that changes.
type group struct {
	parent  context.Context
	stops   map[string]func()
	running sync.WaitGroup
}

func newGroup(parent context.Context) *group {
	return &group{parent: parent, stops: map[string]func(){}}
}

// sync stops the goroutines of other keys and starts the missing ones, in the order of the keys, if
// enter succeeds; leave is called when they are stopped. It returns the first error of enter. It is
// called by one goroutine at a time.
func (g *group) sync(keys []string, enter func(key string) (leave func(), err error), run func(ctx context.Context, key string)) (left error) {
	wanted := make(map[string]bool, len(keys))
	for _, key := range keys {
		wanted[key] = true
	}
	for key, end := range g.stops {
		if !wanted[key] {
			end()
			delete(g.stops, key)
		}
	}
	for _, key := range keys {
		if g.stops[key] != nil {
			continue
		}
		leave, err := enter(key)
		if err != nil {
			left = cmp.Or(left, err)
			continue
		}
		ctx, cancel := context.WithCancel(g.parent)
		g.stops[key] = func() { cancel(); leave() }
		g.running.Go(func() { run(ctx, key) })
	}
	return left
}

// stop stops all goroutines and waits for them.
func (g *group) stop() {
	for _, end := range g.stops {
		end()
	}
	g.running.Wait()
}
