// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/internal/testing/pipetest"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.New(upstream))
	goleak.VerifyTestMain(m)
}

func kind() pipetest.Kind {
	return pipetest.Kind{Serve: serve, Dial: dialAgent}
}

func serve(tb testing.TB, listener net.Listener, options pipetest.HubOptions) {
	tb.Helper()
	hub, err := NewHub(HubConfig{
		HubID: options.HubID, Handler: options.Handler, Admit: options.Admit,
		DialTimeout: options.DialTimeout, Patience: options.Patience, PerCluster: options.PerCluster,
	})
	if err != nil {
		tb.Fatal(err)
	}
	server := grpc.NewServer(append(hub.ServerOptions(), grpc.Creds(Credentials(options.TLS)))...)
	hub.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	tb.Cleanup(func() {
		server.Stop()
		// A test that ends at once may stop the server before it serves.
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			tb.Errorf("gRPC server: %v", err)
		}
	})
}

func dialAgent(ctx context.Context, options pipetest.AgentOptions) (pipe.Link, error) {
	return Dial(ctx, AgentConfig{AgentConfig: pipe.AgentConfig{
		Address: options.Address, TLS: options.TLS, Process: options.Process, DialContext: options.DialContext,
	}})
}

func TestPipe(t *testing.T) {
	pipetest.Run(t, kind())
}
