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

	"github.com/spokelet/spokelet/internal/testing/pipetest"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func TestConfigsAreValidated(t *testing.T) {
	hub := HubConfig{
		HubID: identity.NewID(), Admit: admitAll,
		Handler: pipe.HandlerFunc(func(context.Context, pipe.Peer, pipe.Pipe) {}),
	}
	agent := AgentConfig{AgentConfig: pipe.AgentConfig{
		Address: "hub:8443", TLS: &tls.Config{MinVersion: tls.VersionTLS13}, Process: "a",
	}}
	if err := hub.Validate(); err != nil {
		t.Error(err)
	}
	if err := agent.Validate(); err != nil {
		t.Error(err)
	}
	for name, validate := range map[string]func() error{
		"no hub id":       func() error { c := hub; c.HubID = ""; return c.Validate() },
		"no handler":      func() error { c := hub; c.Handler = nil; return c.Validate() },
		"no admission":    func() error { c := hub; c.Admit = nil; return c.Validate() },
		"negative limits": func() error { c := hub; c.PerCluster = -1; return c.Validate() },
		"no address":      func() error { c := agent; c.Address = ""; return c.Validate() },
		"no TLS":          func() error { c := agent; c.TLS = nil; return c.Validate() },
		"no process":      func() error { c := agent; c.Process = ""; return c.Validate() },
	} {
		t.Run(name, func(t *testing.T) {
			if validate() == nil {
				t.Error("Validate() = nil")
			}
		})
	}
}

func TestALinkWithoutAnAnswerIsBounded(t *testing.T) {
	h := pipetest.Start(t, kind(), nil)
	wire := pipetest.NewWire(-1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	options := h.Agent(t, nil)
	_, err := Dial(ctx, AgentConfig{AgentConfig: pipe.AgentConfig{
		Address: options.Address, TLS: options.TLS, Process: options.Process,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := wire.DialContext(ctx, network, address)
			return &freezeAfterHandshake{Conn: conn, wire: wire}, err
		},
	}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial() = %v, want %v", err, context.DeadlineExceeded)
	}
}

// freezeAfterHandshake freezes the wire at the third write: the TLS client has
// spoken twice and gRPC begins.
type freezeAfterHandshake struct {
	net.Conn
	wire   *pipetest.Wire
	writes int
}

func (c *freezeAfterHandshake) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 3 {
		c.wire.Freeze()
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
		if pipe.ValidateProcess(process) != nil {
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
