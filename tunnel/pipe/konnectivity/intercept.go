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
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// intercept stands between the agent and its stream. The stream lives as long
// as the link, which the agent, who opens it without a context, cannot say.
func (l *link) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
	method string, streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	s, err := streamer(metadata.NewOutgoingContext(l.ctx, md), desc, cc, method, opts...)
	if err != nil {
		l.end(callError(err))
		return nil, err
	}
	return &interceptedStream{ClientStream: s, link: l, closing: newClosing()}, nil
}

// interceptedStream is the hub's stream as the agent sees it.
type interceptedStream struct {
	grpc.ClientStream
	link    *link
	closing *closing
}

// Header returns the hub's answer to the registration. A refusal has none; the
// agent would report that as a missing server id.
func (s *interceptedStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err == nil && len(md.Get(header.ServerID)) == 0 {
		err = s.ClientStream.RecvMsg(new(client.Packet))
	}
	if err != nil {
		s.link.end(callError(err))
		return nil, err
	}
	return md, nil
}

// RecvMsg returns the hub's next packet. What it asks to dial becomes the
// agent's own socket; what is no packet of a server ends the link.
func (s *interceptedStream) RecvMsg(m any) error {
	s.link.serveOnce.Do(func() { close(s.link.serving) })
	s.closing.rest()
	err := s.recv(m)
	if err != nil {
		s.link.end(fmt.Errorf("%w: hub: %w", pipe.ErrLost, err))
		s.link.servedOnce.Do(func() { close(s.link.served) })
	}
	return err
}

func (s *interceptedStream) recv(m any) error {
	p, ok := m.(*client.Packet)
	if !ok {
		return status.Errorf(codes.InvalidArgument, "%v: %T", errPacket, m)
	}
	for {
		if err := s.ClientStream.RecvMsg(p); err != nil {
			return err
		}
		if err := checkFromServer(p); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if request := p.GetDialRequest(); request != nil {
			request.Protocol, request.Address = s.link.listener.target()
		}
		if d := p.GetData(); d == nil || s.closing.deliver(d.GetConnectID()) {
			return nil
		}
	}
}

// SendMsg sends the agent's packet. Its error is always io.EOF, gRPC's word
// for "ask RecvMsg": at another the agent would stop without asking.
func (s *interceptedStream) SendMsg(m any) error {
	p, ok := m.(*client.Packet)
	if !ok {
		s.link.end(fmt.Errorf("%w: %w: %T", pipe.ErrLost, errPacket, m))
		return io.EOF
	}
	// With an error it answers bytes for a connection that never was, and comes
	// from the goroutine that close would wait for.
	if r := p.GetCloseResponse(); r != nil && r.GetError() == "" {
		s.closing.close(r.GetConnectID())
	}
	if err := s.ClientStream.SendMsg(p); err != nil {
		return io.EOF
	}
	return nil
}

// callError classifies the failure of the agent's registration.
func callError(err error) error {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument,
		codes.ResourceExhausted, codes.FailedPrecondition, codes.Unimplemented:
		return fmt.Errorf("%w: %w", pipe.ErrRefused, err)
	default:
		return fmt.Errorf("%w: %w", pipe.ErrLost, err)
	}
}
