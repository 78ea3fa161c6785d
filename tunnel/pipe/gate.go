// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Gate is the one way in for agents, whatever the pipe: it establishes who is
// at the far end of a TLS connection and whether a pipe may be made for it.
// Use NewGate.
type Gate struct {
	hubID      string
	admit      Admit
	perCluster int

	mu    sync.Mutex
	pipes map[identity.Cluster]int
}

// NewGate returns a gate for the clusters of one hub, each of which may have
// perCluster pipes at once.
func NewGate(hubID string, admit Admit, perCluster int) *Gate {
	return &Gate{hubID: hubID, admit: admit, perCluster: perCluster, pipes: map[identity.Cluster]int{}}
}

// Enter lets an agent in. The cluster comes from the certificate that TLS
// verified; the process is what the agent claims. leave must be called when
// the pipe has ended. Errors wrap ErrStranger, ErrProcess, ErrNotAdmitted or
// ErrTooMany, and may hold what the peer must not be told.
func (g *Gate) Enter(ctx context.Context, state tls.ConnectionState, process string, remote net.Addr) (peer Peer, leave func(), err error) {
	peer, err = g.identify(state)
	if err != nil {
		return Peer{}, nil, err
	}
	if err := ValidateProcess(process); err != nil {
		return Peer{}, nil, fmt.Errorf("cluster %s: %w", peer.Cluster.Name, err)
	}
	if err := g.admit(ctx, peer.Cluster); err != nil {
		return Peer{}, nil, fmt.Errorf("cluster %s: %w: %w", peer.Cluster.Name, ErrNotAdmitted, err)
	}
	if !g.count(peer.Cluster) {
		return Peer{}, nil, fmt.Errorf("cluster %s: %w", peer.Cluster.Name, ErrTooMany)
	}
	peer.Process, peer.Remote = process, remote
	return peer, sync.OnceFunc(func() { g.uncount(peer.Cluster) }), nil
}

// identify does not look at the certificates that a peer sent but at the
// chains that were verified, which a peer without a certificate has none of.
func (g *Gate) identify(state tls.ConnectionState) (Peer, error) {
	chains := state.VerifiedChains
	if len(chains) == 0 || len(chains[0]) == 0 {
		return Peer{}, fmt.Errorf("%w: no client certificate", ErrStranger)
	}
	leaf := chains[0][0]
	cluster, err := identity.ClusterOf(leaf)
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", ErrStranger, err)
	}
	if cluster.HubID != g.hubID {
		return Peer{}, fmt.Errorf("%w: %s is of another hub", ErrStranger, cluster)
	}
	return Peer{Cluster: cluster, NotAfter: leaf.NotAfter}, nil
}

func (g *Gate) count(c identity.Cluster) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipes[c] >= g.perCluster {
		return false
	}
	g.pipes[c]++
	return true
}

func (g *Gate) uncount(c identity.Cluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipes[c]--; g.pipes[c] == 0 {
		delete(g.pipes, c)
	}
}
