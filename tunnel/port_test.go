// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/tunneltest"
)

// listen starts a hub with its public port on loopback.
func listen(tb testing.TB, change func(*tunnel.ServerConfig)) (hub *tunneltest.Hub, address string) {
	tb.Helper()
	hub = tunneltest.NewHub(tb, change)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- hub.Server.Serve(ctx, l) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			tb.Errorf("Serve() = %v", err)
		}
	})
	return hub, l.Addr().String()
}

// runOver runs an agent that dials the public port.
func runOver(tb testing.TB, hub *tunneltest.Hub, address, name string, doors map[string]http.Handler) *tunneltest.Agent {
	tb.Helper()
	return hub.Run(tb, hub.Authority.Cluster(name), nil, func(c *tunnel.AgentConfig) {
		c.Address = address
		c.DialPipe = nil // konnectivity
		c.Doors = doors
	})
}

func TestTheRealPipeCarriesSessions(t *testing.T) {
	hub, address := listen(t, nil)
	agent := runOver(t, hub, address, "spoke1", kube(teach))
	session := hub.Session(t, "spoke1")
	readLesson(t, session)
	agent.Stop()
	<-session.Done()
}
