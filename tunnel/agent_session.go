// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spokelet/spokelet/tunnel/bufconn"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// agentSession is the agent's end of one session.
type agentSession struct {
	agent       *Agent
	link        pipe.Link
	flow        *flowConn
	streams     *streamCounter
	window      *windowSizer
	leaf        *x509.Certificate // our own
	hubLeaf     *x509.Certificate // the hub's
	connectedAt time.Time
	control     *agentControl

	// ctx ends with the session; its cause is why.
	ctx       context.Context
	cancel    context.CancelCauseFunc
	closeOnce sync.Once
	// replaceCtx ends when another session should take over; its cause is why.
	replaceCtx         context.Context
	requestReplacement context.CancelCauseFunc
}

// openSession dials a pipe and opens a session on it, up to the exchange of hellos.
func (a *Agent) openSession(ctx context.Context) (*agentSession, error) {
	cert, authorities, hubID, err := a.config.Credentials.Certificate()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	link, err := a.dialPipe(ctx, agentPipeTLS(cert, authorities, hubID))
	if err != nil {
		if errors.Is(err, pipe.ErrRefused) {
			a.reportRefusal(leaf)
		}
		return nil, err
	}
	session, err := a.acceptSession(ctx, link, leaf, agentSessionTLS(cert, authorities, hubID))
	if err != nil {
		_ = link.Close()
		return nil, err
	}
	return session, nil
}

func (a *Agent) dialPipe(ctx context.Context, config *tls.Config) (pipe.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, a.config.Limits.HandshakeTimeout)
	defer cancel()
	return a.config.DialPipe(ctx, pipe.DialConfig{
		Address: a.config.Address, TLS: config, Process: a.nextProcessName(), DialContext: environmentDial,
	})
}

// acceptSession waits for the hub to open the session on a link.
func (a *Agent) acceptSession(ctx context.Context, link pipe.Link, leaf *x509.Certificate, config *tls.Config) (*agentSession, error) {
	ctx, cancel := context.WithTimeout(ctx, a.config.Limits.HandshakeTimeout)
	defer cancel()
	unguard := context.AfterFunc(ctx, func() { _ = link.Close() })
	defer unguard()
	raw, err := link.Accept()
	if err != nil {
		return nil, fmt.Errorf("accept: %w", preferCause(ctx, err))
	}
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("session TLS: %w", preferCause(ctx, err))
	}
	if !unguard() { // from here on the session ends its link
		return nil, fmt.Errorf("hello: %w", ctx.Err())
	}
	session := a.newSession(link, leaf, conn, raw)
	go session.serve()
	if err := session.waitForHellos(ctx); err != nil {
		session.closeWith(err)
		return nil, err
	}
	go session.maintain()
	return session, nil
}

// waitForHellos waits for the hellos. Once they are exchanged the hub may use the
// session, so that then even an agent that has to stop must drain it.
func (s *agentSession) waitForHellos(ctx context.Context) error {
	select {
	case <-s.control.helloDone:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	select {
	case <-s.control.helloDone:
		return nil
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("hello: %w", ctx.Err())
	}
	return context.Cause(s.ctx)
}

// preferCause returns the cause of the context where it has one: err then only says
// that the connection was closed.
func preferCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (a *Agent) newSession(link pipe.Link, leaf *x509.Certificate, conn *tls.Conn, raw net.Conn) *agentSession {
	s := &agentSession{
		agent:       a,
		link:        link,
		flow:        newFlowConn(conn, raw, false, a.config.Limits.StreamWindow),
		streams:     newStreamCounter(a.config.Address, a.config.Limits),
		window:      newWindowSizer(a.config.Limits),
		leaf:        leaf,
		hubLeaf:     conn.ConnectionState().PeerCertificates[0],
		connectedAt: time.Now(),
	}
	s.streams.onChange = func(open int) { s.flow.setWindow(s.window.setStreams(open)) }
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.replaceCtx, s.requestReplacement = context.WithCancelCause(s.ctx)
	s.control = newAgentControl(s)
	return s
}

// closeWith closes the session and its pipe at once. The first reason counts.
func (s *agentSession) closeWith(reason error) {
	s.closeOnce.Do(func() {
		s.cancel(reason)
		s.flow.abort()
		_ = s.link.Close()
	})
}

// drain tells the hub that this session is to end. The hub, which knows its
// streams, ends it when the last one has.
func (s *agentSession) drain(reason string) {
	if err := s.control.sendDrain(reason); err != nil {
		s.closeWith(fmt.Errorf("%w: drain: %w", ErrLost, err))
	}
}

// serve runs HTTP/2 until the connection ends.
func (s *agentSession) serve() {
	s.agent.http2.serve(s.ctx, s.flow, s)
	s.closeWith(fmt.Errorf("%w: %w", ErrLost, errEnded))
}

var errEnded = errors.New("HTTP/2 ended")

// ServeHTTP passes a request to the handler of its door, and a raw stream to the
// HTTP/1.1 server.
func (s *agentSession) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	door, err := ParseDoor(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	handler, err := s.findHandler(door, r.Method)
	if err != nil {
		http.Error(w, err.Error(), StatusCode(err))
		return
	}
	if err := s.streams.acquire(door); err != nil {
		http.Error(w, err.Error(), StatusCode(err))
		return
	}
	defer s.streams.release(door)
	if r.Method != http.MethodConnect {
		handler.ServeHTTP(w, r)
		return
	}
	s.serveStream(w, r, door, handler)
}

// findHandler returns the handler of a door.
func (s *agentSession) findHandler(door, method string) (http.Handler, error) {
	if door == DoorControl && method != http.MethodConnect {
		return s.control.handler, nil
	}
	select {
	case <-s.control.helloDone:
	default:
		return nil, fmt.Errorf("door %q: %w: no hello yet", door, ErrNotConnected)
	}
	handler := s.agent.config.Doors[door]
	if handler == nil {
		return nil, fmt.Errorf("door %q: %w of this agent", door, ErrDoor)
	}
	return handler, nil
}

func (s *agentSession) serveStream(w http.ResponseWriter, r *http.Request, door string, handler http.Handler) {
	st := &agentStream{
		Conn:    newStream(bufconn.Addr(door), "hub"),
		handler: handler,
	}
	if !s.agent.streamServer.deliver(st) {
		http.Error(w, "agent is shutting down", http.StatusServiceUnavailable)
		return
	}
	st.serve(w, r)
}

// closeSoon closes the session after a grace in which the hub should close it.
func (s *agentSession) closeSoon(reason error) {
	time.AfterFunc(shutdownGrace, func() { s.closeWith(reason) })
}

// closeReason is the error of a session that the hub ended in order: the reason that
// it announced, if any.
func (s *agentSession) closeReason() error {
	if announced := context.Cause(s.replaceCtx); announced != nil {
		return fmt.Errorf("%w: %w", ErrClosed, announced)
	}
	return fmt.Errorf("%w: by the hub", ErrClosed)
}
