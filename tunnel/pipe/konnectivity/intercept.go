// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// intercept stands between the agent and its stream. The stream lives as long
// as the link, which the agent, who opens it without a context, cannot say.
func (l *link) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
	method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if l.ctx.Err() != nil {
		// The client set tries once more before it sees that it is to stop. This
		// is the one error that it does not log as such.
		return nil, &agent.DuplicateServerError{}
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	s, err := streamer(metadata.NewOutgoingContext(l.ctx, md), desc, cc, method, opts...)
	if err != nil {
		l.closeWith(classifyCallError(err))
		return nil, err
	}
	return &interceptedStream{ClientStream: s, link: l, backend: newBackend(l, s)}, nil
}

// interceptedStream is the hub's stream as the agent sees it: registration, and
// then silence until the end. What the hub sends is served by the backend.
type interceptedStream struct {
	grpc.ClientStream
	link    *link
	backend *backend
}

// Header returns the hub's answer to the registration. A refusal has none; the
// agent would report that as a missing server id.
func (s *interceptedStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err == nil && len(md.Get(header.ServerID)) == 0 {
		err = s.ClientStream.RecvMsg(new(client.Packet))
	}
	if err != nil {
		s.link.closeWith(classifyCallError(err))
		return nil, err
	}
	return md, nil
}

// RecvMsg serves the hub's packets and returns when there are no more: no
// packet reaches the agent, which would dial what it is told.
func (s *interceptedStream) RecvMsg(any) error {
	s.link.serveOnce.Do(func() { close(s.link.serving) })
	for {
		p := new(client.Packet)
		err := s.ClientStream.RecvMsg(p)
		if err == nil {
			err = s.backend.handle(p)
		}
		if err != nil {
			s.link.closeWith(fmt.Errorf("%w: hub: %w", pipe.ErrLost, err))
			// The link says why. The agent would log another error than this as
			// one of its own, at every reconnect.
			return io.EOF
		}
	}
}

// SendMsg sends nothing: an agent that receives nothing has nothing to say.
func (s *interceptedStream) SendMsg(m any) error {
	s.link.closeWith(fmt.Errorf("%w: %w: %T from the agent itself", pipe.ErrLost, errPacket, m))
	return io.EOF
}

// classifyCallError classifies the failure of the agent's registration.
func classifyCallError(err error) error {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument,
		codes.ResourceExhausted, codes.FailedPrecondition, codes.Unimplemented:
		return fmt.Errorf("%w: %w", pipe.ErrRefused, err)
	default:
		return fmt.Errorf("%w: %w", pipe.ErrLost, err)
	}
}
