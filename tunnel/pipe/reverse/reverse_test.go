// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package reverse

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/internal/testing/pipetest"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func serve(tb testing.TB, listener net.Listener, options pipetest.HubOptions) {
	tb.Helper()
	hub, err := NewHub(HubConfig{
		HubID: options.HubID, TLS: options.TLS, Handler: options.Handler, Admit: options.Admit,
		DialTimeout: options.DialTimeout, PerCluster: options.PerCluster,
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	served := make(chan error, 1)
	go func() { served <- hub.Serve(ctx, listener) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
}

func dialAgent(ctx context.Context, options pipetest.AgentOptions) (pipe.Link, error) {
	return Dial(ctx, AgentConfig{
		Address: options.Address, TLS: options.TLS, Process: options.Process, DialContext: options.DialContext,
	})
}

func TestPipe(t *testing.T) {
	pipetest.Run(t, pipetest.Kind{Serve: serve, Dial: dialAgent})
}
