// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// errCredentials says that the gRPC server does not use Credentials: its
// connections cannot be closed from here.
var errCredentials = errors.New("server does not use the credentials of this package")

// caller is an agent that was admitted.
type caller struct {
	peer       pipe.Peer
	connection *connection
	// ctx is the stream's context with metadata in which the proxy server
	// finds the established identity and nothing that the agent sent.
	ctx   context.Context
	leave func()
}

// enter admits the opener of an agent stream.
func enter(ctx context.Context, a *admission) (caller, error) {
	info, ok := authInfo(ctx)
	if !ok || info.connection == nil {
		return caller{}, errCredentials
	}
	if !info.connection.asked.CompareAndSwap(false, true) {
		return caller{}, fmt.Errorf("connection was used for a pipe: %w", pipe.ErrTooMany)
	}
	peer, leave, err := a.enter(ctx, info.State, claimedProcess(ctx), remoteAddr(ctx))
	if err != nil {
		info.connection.closeSoon() // it is good for nothing else
		return caller{}, err
	}
	info.connection.claimed()
	return caller{
		peer:       peer,
		connection: info.connection,
		ctx:        withIdentity(ctx, peer),
		leave:      leave,
	}, nil
}

// refusal is what an agent is told.
func refusal(err error) error {
	class, code := refusalClass(err), codes.PermissionDenied
	switch {
	case errors.Is(class, pipe.ErrStranger):
		code = codes.Unauthenticated
	case errors.Is(class, pipe.ErrProcess):
		code = codes.InvalidArgument
	case errors.Is(class, pipe.ErrTooMany):
		code = codes.ResourceExhausted
	}
	return status.Error(code, class.Error())
}

// claimedProcess returns what the agent calls its process: konnectivity's
// agent ID. Sent twice it is none.
func claimedProcess(ctx context.Context) string {
	ids := metadata.ValueFromIncomingContext(ctx, header.AgentID)
	if len(ids) != 1 {
		return ""
	}
	return ids[0]
}

// withIdentity replaces all metadata: the proxy server reads the agent's ID,
// its identifiers and a token from there.
func withIdentity(ctx context.Context, p pipe.Peer) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(
		header.AgentID, p.Cluster.Name+"/"+p.Process,
		header.AgentIdentifiers, "host="+p.Cluster.Name,
	))
}

func remoteAddr(ctx context.Context) address {
	if p, ok := grpcpeer.FromContext(ctx); ok && p.Addr != nil {
		return address(p.Addr.String())
	}
	return "unknown"
}

// agentStream is the agent's stream as the proxy server sees it.
type agentStream struct {
	agent.AgentService_ConnectServer
	ctx  context.Context
	pipe *hubPipe
	// detour is the connection whose bytes go through the proxy server because
	// the first of them came before it had completed the dial: the others must
	// not overtake them.
	detour int64
}

// Context returns the context with the established identity.
func (s *agentStream) Context() context.Context { return s.ctx }

// Recv returns the next packet for the proxy server, and ends the pipe on one
// that no agent sends. Bytes of the open stream go to its front end.
func (s *agentStream) Recv() (*client.Packet, error) {
	for {
		p, err := s.AgentService_ConnectServer.Recv()
		if err == nil {
			err = checkFromAgent(p)
		}
		if err != nil {
			s.lost(err)
			return nil, io.EOF
		}
		if !s.deliver(p) {
			return p, nil
		}
	}
}

// Send sends a packet to the agent. What cannot be sent ends the pipe, and with
// it all that the packet was about.
func (s *agentStream) Send(p *client.Packet) error {
	if err := s.AgentService_ConnectServer.Send(p); err != nil {
		s.lost(err)
	}
	return nil
}

// lost keeps why the agent's stream ended. The proxy server is told of an end
// in order: agents come and go, and it would log each as an error.
func (s *agentStream) lost(err error) {
	s.pipe.end(fmt.Errorf("%w: stream: %w", pipe.ErrLost, err))
}

// deliver gives bytes to the front end and says whether it did.
func (s *agentStream) deliver(p *client.Packet) bool {
	d := p.GetData()
	if d == nil || d.GetConnectID() == s.detour {
		return false
	}
	f := s.pipe.current()
	if f == nil || !f.takes(d.GetConnectID()) {
		s.detour = d.GetConnectID()
		return false
	}
	f.deliver(d)
	return true
}
