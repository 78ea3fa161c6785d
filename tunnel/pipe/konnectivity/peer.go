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

	"github.com/spokelet/spokelet/tunnel/bufconn"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// errCredentials says that the gRPC server does not use Credentials: its
// connections cannot be closed from here.
var errCredentials = errors.New("server does not use the credentials of this package")

// admittedAgent is an agent that was admitted.
type admittedAgent struct {
	peer       pipe.Peer
	connection *connection
	// ctx is the stream's context with metadata in which the proxy server
	// finds the established identity and nothing that the agent sent.
	ctx   context.Context
	leave func()
}

// enter admits the opener of an agent stream.
func enter(ctx context.Context, a *admission) (admittedAgent, error) {
	info, ok := authInfo(ctx)
	if !ok || info.connection == nil {
		return admittedAgent{}, errCredentials
	}
	if !info.connection.hasPipe.CompareAndSwap(false, true) {
		return admittedAgent{}, fmt.Errorf("connection was used for a pipe: %w", pipe.ErrTooMany)
	}
	peer, leave, err := a.enter(ctx, info.State, claimedProcess(ctx), remoteAddr(ctx))
	if err != nil {
		info.connection.closeSoon() // it is good for nothing else
		return admittedAgent{}, err
	}
	info.connection.reportClaimed()
	return admittedAgent{
		peer:       peer,
		connection: info.connection,
		ctx:        withIdentity(ctx, peer),
		leave:      leave,
	}, nil
}

// refusalStatus is the gRPC status of a refusal.
func refusalStatus(err error) error {
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

// claimedProcess returns the agent's name of its process: konnectivity's agent ID.
// It is empty when the ID was sent twice.
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

func remoteAddr(ctx context.Context) bufconn.Addr {
	if p, ok := grpcpeer.FromContext(ctx); ok && p.Addr != nil {
		return bufconn.Addr(p.Addr.String())
	}
	return "unknown"
}

// agentStream is the agent's stream as the proxy server sees it.
type agentStream struct {
	agent.AgentService_ConnectServer
	ctx  context.Context
	pipe *hubPipe
	// viaProxyServer is the connection whose bytes go through the proxy server because
	// the first of them came before it had completed the dial: the others must
	// not overtake them.
	viaProxyServer int64
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
			s.closePipe(err)
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
		s.closePipe(err)
	}
	return nil
}

// closePipe closes the pipe with the error of the agent's stream. The proxy server sees
// io.EOF instead: it would log every other error, and agents come and go.
func (s *agentStream) closePipe(err error) {
	s.pipe.closeWith(fmt.Errorf("%w: stream: %w", pipe.ErrLost, err))
}

// deliver delivers bytes to the front end, and returns false for all other packets.
func (s *agentStream) deliver(p *client.Packet) bool {
	d := p.GetData()
	if d == nil || d.GetConnectID() == s.viaProxyServer {
		return false
	}
	f := s.pipe.currentFrontend()
	if f == nil || !f.isOpenAs(d.GetConnectID()) {
		s.viaProxyServer = d.GetConnectID()
		return false
	}
	f.deliver(d)
	return true
}
