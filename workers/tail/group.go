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

// sync ends the context of what is too much, and then starts what is missing, in the order of
// the keys: that for which enter finds a place, which leave gives back. It returns what enter
// says of the first that has none. It is called by one goroutine at a time.
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

// stop ends all, and returns when they have ended.
func (g *group) stop() {
	for _, end := range g.stops {
		end()
	}
	g.running.Wait()
}
