// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"hash/fnv"
	"sync"
)

// errPorts is returned when every port of the range is taken: there are more
// virtual nodes than ports.
var errPorts = errors.New("no kubelet port is left")

// ports gives each node a port of its own. Nothing is stored: a port is read
// back from the Node that bears it, and a node without one is given the same
// port again where that is free.
type ports struct {
	low, high int32

	mu sync.Mutex // guards the maps
	// byPort and byNode are each other's inverse.
	byPort map[int32]string
	byNode map[string]int32
}

func newPorts(low, high int32) *ports {
	return &ports{low: low, high: high, byPort: map[int32]string{}, byNode: map[string]int32{}}
}

// reserve gives node the port that its Node bears. It does nothing when the
// port is outside the range, taken, or the node has one.
func (p *ports) reserve(node string, port int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, taken := p.byPort[port]
	_, has := p.byNode[node]
	if taken || has || port < p.low || port > p.high {
		return
	}
	p.byPort[port], p.byNode[node] = node, port
}

// allocate returns the node's port and gives it one if it has none.
func (p *ports) allocate(node string) (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port, ok := p.byNode[node]; ok {
		return port, nil
	}
	return p.allocateFrom(node, p.preferredOffset(node))
}

// reallocate gives node the next free port after the one that it has, which stays
// taken by nobody.
func (p *ports) reallocate(node string) (int32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, ok := p.byNode[node]
	if !ok {
		return p.allocateFrom(node, p.preferredOffset(node))
	}
	delete(p.byNode, node)
	delete(p.byPort, old)
	return p.allocateFrom(node, old-p.low+1)
}

// release frees the node's port.
func (p *ports) release(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port, ok := p.byNode[node]; ok {
		delete(p.byPort, port)
		delete(p.byNode, node)
	}
}

func (p *ports) preferredOffset(node string) int32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(node)) // never fails
	size := p.high - p.low + 1
	return int32(hash.Sum32() % uint32(size)) //nolint:gosec // a range of ports is positive and small
}

func (p *ports) allocateFrom(node string, offset int32) (int32, error) {
	size := p.high - p.low + 1
	for i := range size {
		port := p.low + (offset+i)%size
		if _, taken := p.byPort[port]; !taken {
			p.byPort[port], p.byNode[node] = node, port
			return port, nil
		}
	}
	return 0, errPorts
}
