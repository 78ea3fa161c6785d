// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func TestConfigsAreValidated(t *testing.T) {
	hub := HubConfig{
		HubID: identity.NewID(), Admit: admitAll,
		Handler: pipe.HandlerFunc(func(context.Context, pipe.Peer, pipe.Pipe) {}),
	}
	if err := hub.Validate(); err != nil {
		t.Error(err)
	}
	dial := func(change func(*pipe.DialConfig)) error {
		config := pipe.DialConfig{
			Address: "hub:8443", TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Process: "a", DialContext: dialTCP,
		}
		change(&config)
		_, err := Dial(t.Context(), config)
		return err
	}
	for name, validate := range map[string]func() error{
		"no hub id":       func() error { c := hub; c.HubID = ""; return c.Validate() },
		"no handler":      func() error { c := hub; c.Handler = nil; return c.Validate() },
		"no admission":    func() error { c := hub; c.Admit = nil; return c.Validate() },
		"negative limits": func() error { c := hub; c.PerCluster = -1; return c.Validate() },
		"no address":      func() error { return dial(func(c *pipe.DialConfig) { c.Address = "" }) },
		"no TLS":          func() error { return dial(func(c *pipe.DialConfig) { c.TLS = nil }) },
		"no process":      func() error { return dial(func(c *pipe.DialConfig) { c.Process = "" }) },
	} {
		t.Run(name, func(t *testing.T) {
			if validate() == nil {
				t.Error("Validate() = nil")
			}
		})
	}
}

func TestDialToSilentHubIsBounded(t *testing.T) {
	h := startHub(t, nil)
	network := newNetwork(-1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, h.agentConfig(t, func(c *pipe.DialConfig) {
		c.DialContext = func(ctx context.Context, protocol, address string) (net.Conn, error) {
			conn, err := network.dialContext(ctx, protocol, address)
			return &freezeAfterHandshake{Conn: conn, network: network}, err
		}
	}))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial() = %v, want %v", err, context.DeadlineExceeded)
	}
}

// freezeAfterHandshake freezes the network at the third write: the TLS client has
// spoken twice and gRPC begins.
type freezeAfterHandshake struct {
	net.Conn
	network *testNetwork
	writes  int
}

func (c *freezeAfterHandshake) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 3 {
		c.network.freeze()
	}
	return c.Conn.Write(p)
}

func FuzzClaimedProcess(f *testing.F) {
	f.Add("agent-1", "")
	f.Add("store2/agent-1", "agent-2")
	f.Fuzz(func(t *testing.T, first, second string) {
		md := metadata.MD{}
		md.Append(header.AgentID, first)
		if second != "" {
			md.Append(header.AgentID, second)
		}
		ctx := metadata.NewIncomingContext(t.Context(), md)
		process := claimedProcess(ctx)
		if validateProcess(process) != nil {
			return
		}
		if process != first || second != "" {
			t.Errorf("claims %q and %q are taken for %q", first, second, process)
		}
		cluster := identity.Cluster{Name: "store1"}
		established, _ := metadata.FromIncomingContext(withIdentity(ctx, pipe.Peer{Cluster: cluster, Process: process}))
		if ids := established.Get(header.AgentID); len(ids) != 1 || ids[0] != "store1/"+process || len(established) != 2 {
			t.Errorf("proxy server sees %v", established)
		}
	})
}
