// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// admission establishes who is at the far end of a TLS connection, and whether a
// pipe may be made for it.
type admission struct {
	hubID      string
	admit      pipe.Admit
	perCluster int

	mu    sync.Mutex
	pipes map[identity.Cluster]int
}

// enter admits an agent. The cluster comes from the certificate that TLS verified;
// the process is what the agent claims. leave must be called when the pipe has
// ended. Errors wrap pipe.ErrStranger, ErrProcess, ErrNotAdmitted or ErrTooMany,
// and may hold what the peer must not be told.
func (a *admission) enter(ctx context.Context, state tls.ConnectionState, process string, remote net.Addr) (peer pipe.Peer, leave func(), err error) {
	peer, err = a.identify(state)
	if err != nil {
		return pipe.Peer{}, nil, err
	}
	if err := validateProcess(process); err != nil {
		return pipe.Peer{}, nil, fmt.Errorf("cluster %s: %w", peer.Cluster.Name, err)
	}
	if err := a.admit(ctx, peer.Cluster); err != nil {
		return pipe.Peer{}, nil, fmt.Errorf("cluster %s: %w: %w", peer.Cluster.Name, pipe.ErrNotAdmitted, err)
	}
	if !a.acquire(peer.Cluster) {
		return pipe.Peer{}, nil, fmt.Errorf("cluster %s: %w", peer.Cluster.Name, pipe.ErrTooMany)
	}
	peer.Process, peer.Remote = process, remote
	return peer, sync.OnceFunc(func() { a.release(peer.Cluster) }), nil
}

// identify reads the chains that TLS verified, not the certificates that the peer
// sent: a peer without a client certificate has no chain.
func (a *admission) identify(state tls.ConnectionState) (pipe.Peer, error) {
	chains := state.VerifiedChains
	if len(chains) == 0 || len(chains[0]) == 0 {
		return pipe.Peer{}, fmt.Errorf("%w: no client certificate", pipe.ErrStranger)
	}
	leaf := chains[0][0]
	cluster, err := identity.ClusterOf(leaf)
	if err != nil {
		return pipe.Peer{}, fmt.Errorf("%w: %w", pipe.ErrStranger, err)
	}
	if cluster.HubID != a.hubID {
		return pipe.Peer{}, fmt.Errorf("%w: %s is of another hub", pipe.ErrStranger, cluster)
	}
	return pipe.Peer{Cluster: cluster, NotAfter: leaf.NotAfter}, nil
}

// acquire counts a pipe of a cluster. It returns false when the cluster has all
// that it may have.
func (a *admission) acquire(c identity.Cluster) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pipes[c] >= a.perCluster {
		return false
	}
	a.pipes[c]++
	return true
}

func (a *admission) release(c identity.Cluster) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pipes[c]--; a.pipes[c] == 0 {
		delete(a.pipes, c)
	}
}

const maxProcessLength = 63

// validateProcess returns an error that wraps pipe.ErrProcess when the name of an
// agent process is not 1 to 63 of a-z, 0-9 and '-'. UUIDs and names of pods pass
// (those of at most 63 bytes, without dots).
func validateProcess(process string) error {
	if process == "" || len(process) > maxProcessLength {
		return fmt.Errorf("process %.80q: %w", process, pipe.ErrProcess)
	}
	for i := range len(process) {
		c := process[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("process %q: %w", process, pipe.ErrProcess)
		}
	}
	return nil
}

// refusalClass returns what the peer is told of an error of enter: its class and
// none of the details.
func refusalClass(err error) error {
	for _, class := range []error{pipe.ErrStranger, pipe.ErrProcess, pipe.ErrNotAdmitted, pipe.ErrTooMany} {
		if errors.Is(err, class) {
			return class
		}
	}
	return pipe.ErrRefused
}
