// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// caller is an agent whose identity is established.
type caller struct {
	peer       pipe.Peer
	connection *connection
	// ctx is the stream's context with metadata in which the proxy server
	// finds the established identity and nothing that the agent sent.
	ctx context.Context
}

// authenticate establishes who opened an agent stream. It errs with a gRPC
// status whose text tells the peer nothing but its own mistake.
func authenticate(ctx context.Context, hubID string) (caller, error) {
	info, ok := authInfo(ctx)
	if !ok || info.connection == nil {
		return caller{}, status.Error(codes.Internal, "connection was not made with the hub's credentials")
	}
	leaf, ok := info.leaf()
	if !ok {
		return caller{}, status.Error(codes.Unauthenticated, "no client certificate")
	}
	cluster, err := identity.ClusterOf(leaf)
	if err != nil {
		return caller{}, status.Error(codes.Unauthenticated, err.Error())
	}
	if cluster.HubID != hubID {
		return caller{}, status.Error(codes.Unauthenticated, "certificate is of another hub's cluster")
	}
	process, err := claimedProcess(ctx)
	if err != nil {
		return caller{}, status.Error(codes.InvalidArgument, err.Error())
	}
	if !info.connection.claimed.CompareAndSwap(false, true) {
		return caller{}, status.Error(codes.FailedPrecondition, "connection has a pipe already")
	}
	return caller{
		peer: pipe.Peer{
			Cluster: cluster, Process: process, Remote: remoteAddr(ctx), NotAfter: leaf.NotAfter,
		},
		connection: info.connection,
		ctx:        withIdentity(ctx, cluster, process),
	}, nil
}

// claimedProcess returns what the agent calls its process: the agent ID of
// konnectivity, sent once.
func claimedProcess(ctx context.Context) (string, error) {
	ids := metadata.ValueFromIncomingContext(ctx, header.AgentID)
	if len(ids) != 1 {
		return "", fmt.Errorf("%d process names: %w", len(ids), pipe.ErrProcess)
	}
	if err := pipe.ValidateProcess(ids[0]); err != nil {
		return "", err
	}
	return ids[0], nil
}

// withIdentity replaces all metadata: the proxy server reads the agent's ID,
// its identifiers and a token from there.
func withIdentity(ctx context.Context, c identity.Cluster, process string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(
		header.AgentID, c.Name+"/"+process,
		header.AgentIdentifiers, "host="+c.Name,
	))
}

func remoteAddr(ctx context.Context) pipe.Addr {
	if p, ok := grpcpeer.FromContext(ctx); ok && p.Addr != nil {
		return pipe.Addr(p.Addr.String())
	}
	return "unknown"
}

// agentStream is the agent's stream as the proxy server sees it.
type agentStream struct {
	agent.AgentService_ConnectServer
	ctx context.Context
}

// Context returns the context with the established identity.
func (s *agentStream) Context() context.Context { return s.ctx }

// Recv returns the next packet that an agent may send, and ends the stream on
// any other.
func (s *agentStream) Recv() (*client.Packet, error) {
	p, err := s.AgentService_ConnectServer.Recv()
	if err != nil {
		return nil, err
	}
	if err := checkFromAgent(p); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return p, nil
}
