// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

const (
	// Both ends ping: 10 s of silence, then 5 s for the answer.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	// A server cuts clients that ping more often than this. gRPC's default,
	// five minutes, would cut every agent.
	keepaliveMinTime = 5 * time.Second
	// A connection without a stream is no pipe: it was not asked for one.
	maxConnectionIdle = 2 * time.Minute

	// How long an agent that was refused has to read why.
	refusalGrace = time.Second

	// gRPC's 32 KiB buffers in both directions are most of what an idle agent
	// costs; bulk transfers are as fast with these.
	readBufferSize  = 4 << 10
	writeBufferSize = 16 << 10

	// Agents send packets of 4 KiB.
	maxMessageSize = 64 << 10
	// An agent opens one stream on its connection.
	maxStreamsPerConnection = 8

	defaultDialTimeout = 5 * time.Second
	defaultPatience    = 5 * time.Second
	defaultPerCluster  = 16
)

// HubConfig says how a Hub serves agents.
type HubConfig struct {
	// HubID is this hub's id: certificates of other hubs' clusters are refused
	// even if the same authority signed them. Required.
	HubID string
	// Handler serves the pipes. Required.
	Handler pipe.Handler
	// Admit is asked before anything is made for an agent. Required.
	Admit pipe.Admit
	// Logger gets refused and ended pipes. Discards if zero.
	Logger logr.Logger

	// DialTimeout bounds Dial, whatever its context says: an agent that is
	// gone does not fail a dial, it never answers. 5 s if zero.
	DialTimeout time.Duration
	// Patience is how long a stream's reader may leave its queue full before
	// the stream is closed. 5 s if zero.
	Patience time.Duration
	// PerCluster bounds the pipes of one cluster: its replicas, twice during
	// renewal. 16 if zero.
	PerCluster int
}

// Default returns the configuration with its zero values replaced.
func (c HubConfig) Default() HubConfig {
	if c.Logger.IsZero() {
		c.Logger = logr.Discard()
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.PerCluster == 0 {
		c.PerCluster = defaultPerCluster
	}
	return c
}

// Validate returns an error when the configuration cannot be used.
func (c HubConfig) Validate() error {
	if err := identity.ValidateID(c.HubID); err != nil {
		return fmt.Errorf("konnectivity hub: %w", err)
	}
	if c.Handler == nil || c.Admit == nil {
		return errors.New("konnectivity hub: handler and admit are required")
	}
	if c.DialTimeout < 0 || c.Patience < 0 || c.PerCluster < 0 {
		return errors.New("konnectivity hub: limits must not be negative")
	}
	return nil
}

// Hub is the hub's end of the pipes. It implements konnectivity's AgentService
// on a gRPC server that others may share.
type Hub struct {
	config    HubConfig
	admission *admission
}

var _ agent.AgentServiceServer = (*Hub)(nil)

// NewHub returns a Hub.
func NewHub(config HubConfig) (*Hub, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Hub{config: config, admission: &admission{
		hubID: config.HubID, admit: config.Admit, perCluster: config.PerCluster, pipes: map[identity.Cluster]int{},
	}}, nil
}

// Register registers the Hub on a gRPC server, which must use Credentials and
// should use ServerOptions.
func (h *Hub) Register(r grpc.ServiceRegistrar) {
	agent.RegisterAgentServiceServer(r, h)
}

// ServerOptions returns what agents need of the gRPC server: keepalive both
// ways, small buffers, small messages, few streams.
func (h *Hub) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionIdle: maxConnectionIdle,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveMinTime, PermitWithoutStream: true,
		}),
		grpc.ReadBufferSize(readBufferSize),
		grpc.WriteBufferSize(writeBufferSize),
		grpc.MaxRecvMsgSize(maxMessageSize),
		grpc.MaxConcurrentStreams(maxStreamsPerConnection),
	}
}

// Connect serves one agent until its stream ends. gRPC calls it; a refusal is
// what the agent is told, and of later errors it sees that TCP is closed.
func (h *Hub) Connect(stream agent.AgentService_ConnectServer) error {
	c, err := enter(stream.Context(), h.admission)
	if err != nil {
		h.config.Logger.Info("Agent refused", "remote", remoteAddr(stream.Context()), "reason", err.Error())
		return refusalStatus(err)
	}
	defer c.leave()
	err = h.serve(stream, c)
	h.config.Logger.V(1).Info("Pipe ended", "cluster", c.peer.Cluster.Name, "process", c.peer.Process,
		"remote", c.peer.Remote, "reason", fmt.Sprint(err))
	return err
}

// serve runs the proxy server of one agent and its handler, and returns when
// both have ended.
func (h *Hub) serve(stream agent.AgentService_ConnectServer, caller admittedAgent) error {
	p := newHubPipe(h.config, caller)
	unwatch := context.AfterFunc(stream.Context(), func() { p.closeWith(pipe.ErrLost) })
	defer unwatch()
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		defer func() { _ = p.Close() }()
		select {
		case <-p.registered:
			h.config.Handler.ServePipe(p.ctx, caller.peer, p)
		case <-p.done:
		}
	}()
	if err := p.server.Connect(&agentStream{AgentService_ConnectServer: stream, ctx: caller.ctx, pipe: p}); err != nil {
		p.closeWith(fmt.Errorf("%w: proxy server: %w", pipe.ErrLost, err))
	}
	p.closeWith(pipe.ErrLost) // Unless it has ended, with a reason.
	<-handled
	return p.closeReason()
}
