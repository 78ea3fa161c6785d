// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// room is the memory for bodies. One host has a part of it, so that who sends
// slowly, and to the limit, keeps nobody else out.
type room struct {
	all  *semaphore.Weighted
	part int64

	mu    sync.Mutex
	hosts map[string]*place // guarded by mu; those with a body, or waiting
}

type place struct {
	*semaphore.Weighted
	users int // guarded by room.mu
}

func newRoom(all, part int64) *room {
	return &room{all: semaphore.NewWeighted(all), part: part, hosts: map[string]*place{}}
}

// take waits for room, until ctx ends. The caller gives it back.
func (r *room) take(ctx context.Context, host string, size int64) (giveBack func(), err error) {
	p := r.enter(host)
	// A host's own part first: who waits for it holds nothing of the others'.
	if err := p.Acquire(ctx, size); err != nil {
		r.leave(host, p)
		return nil, err
	}
	if err := r.all.Acquire(ctx, size); err != nil {
		p.Release(size)
		r.leave(host, p)
		return nil, err
	}
	return func() {
		r.all.Release(size)
		p.Release(size)
		r.leave(host, p)
	}, nil
}

func (r *room) enter(host string) *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.hosts[host]
	if !ok {
		p = &place{Weighted: semaphore.NewWeighted(r.part)}
		r.hosts[host] = p
	}
	p.users++
	return p
}

func (r *room) leave(host string, p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(r.hosts, host)
	}
}
