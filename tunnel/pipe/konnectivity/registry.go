// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"sync"

	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
)

// singleBackend is the backend manager of a proxy server that has one agent, and
// tells when it has been added. Upstream's, made to pick one of many, holds
// 5 KiB of random numbers per proxy server.
type singleBackend struct {
	// BackendManager is nil: it is there for the methods of the interface that
	// are private to the proxy server, which calls them on its own managers
	// only.
	server.BackendManager
	pipe *hubPipe

	mu      sync.Mutex
	backend *server.Backend
}

var _ server.BackendManager = (*singleBackend)(nil)

// Backend returns the agent.
func (r *singleBackend) Backend(context.Context) (*server.Backend, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backend == nil {
		return nil, &server.ErrNotFound{}
	}
	return r.backend, nil
}

// AddBackend adds the agent, once: the pipe has one stream.
func (r *singleBackend) AddBackend(backend *server.Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backend = backend
	r.pipe.backend = backend
	close(r.pipe.registered)
}

// RemoveBackend removes the agent.
func (r *singleBackend) RemoveBackend(*server.Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backend = nil
}

// NumBackends returns 1 when the agent is there.
func (r *singleBackend) NumBackends() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.backend == nil {
		return 0
	}
	return 1
}

// Ready says whether the agent is there.
func (r *singleBackend) Ready() (bool, string) {
	if r.NumBackends() == 0 {
		return false, "no agent"
	}
	return true, ""
}
