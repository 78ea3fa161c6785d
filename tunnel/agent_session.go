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

	"github.com/spokelet/spokelet/tunnel/pipe"
)

// agentSession is the agent's end of one session.
type agentSession struct {
	agent *Agent
	link  pipe.Link
	wire  *flowConn
	slots *slots
	rule  *windowRule
	leaf  *x509.Certificate // our own
	hub   *x509.Certificate // the hub's
	since time.Time
	door  *agentDoor

	// life ends with the session; its cause is why.
	life context.Context
	stop context.CancelCauseFunc
	once sync.Once
	// replace ends when another session should take over; its cause is why.
	replace context.Context
	retire  context.CancelCauseFunc
}

// open leads from nothing to a session whose hellos are exchanged.
func (a *Agent) open(ctx context.Context) (*agentSession, error) {
	cert, authorities, hubID, err := a.config.Credentials.Certificate()
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	link, err := a.dial(ctx, agentPipeTLS(cert, authorities, hubID))
	if err != nil {
		if errors.Is(err, pipe.ErrRefused) {
			a.refused(leaf)
		}
		return nil, err
	}
	session, err := a.accept(ctx, link, leaf, agentSessionTLS(cert, authorities, hubID))
	if err != nil {
		_ = link.Close()
		return nil, err
	}
	return session, nil
}

func (a *Agent) dial(ctx context.Context, config *tls.Config) (pipe.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, a.config.Limits.HandshakeTimeout)
	defer cancel()
	return a.config.DialPipe(ctx, pipe.DialConfig{
		Address: a.config.Address, TLS: config, Process: a.linkName(), DialContext: environmentDial,
	})
}

// accept waits for the hub to open the session on a link.
func (a *Agent) accept(ctx context.Context, link pipe.Link, leaf *x509.Certificate, config *tls.Config) (*agentSession, error) {
	ctx, cancel := context.WithTimeout(ctx, a.config.Limits.HandshakeTimeout)
	defer cancel()
	unguard := context.AfterFunc(ctx, func() { _ = link.Close() })
	defer unguard()
	raw, err := link.Accept()
	if err != nil {
		return nil, fmt.Errorf("accept: %w", explain(ctx, err))
	}
	conn := tls.Server(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("session TLS: %w", explain(ctx, err))
	}
	if !unguard() { // from here on the session ends its link
		return nil, fmt.Errorf("hello: %w", ctx.Err())
	}
	session := a.newSession(link, leaf, conn, raw)
	go session.serve()
	if err := session.greeted(ctx); err != nil {
		session.end(err)
		return nil, err
	}
	go session.maintain()
	return session, nil
}

// greeted waits for the hellos. Once they are exchanged the hub may use the
// session, so that then even an agent that has to stop must drain it.
func (s *agentSession) greeted(ctx context.Context) error {
	select {
	case <-s.door.agreed:
	case <-s.life.Done():
	case <-ctx.Done():
	}
	select {
	case <-s.door.agreed:
		return nil
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("hello: %w", ctx.Err())
	}
	return context.Cause(s.life)
}

// explain prefers the reason why a connection was closed to the fact.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (a *Agent) newSession(link pipe.Link, leaf *x509.Certificate, conn *tls.Conn, raw net.Conn) *agentSession {
	s := &agentSession{
		agent: a,
		link:  link,
		wire:  newFlowConn(conn, raw, false, a.config.Limits.StreamWindow),
		slots: newSlots(a.config.Address, a.config.Limits),
		rule:  newWindowRule(a.config.Limits),
		leaf:  leaf,
		hub:   conn.ConnectionState().PeerCertificates[0],
		since: time.Now(),
	}
	s.slots.changed = func(open int) { s.wire.setWindow(s.rule.open(open)) }
	s.life, s.stop = context.WithCancelCause(context.Background())
	s.replace, s.retire = context.WithCancelCause(s.life)
	s.door = newAgentDoor(s)
	return s
}

// end closes everything at once; the first reason stays.
func (s *agentSession) end(reason error) {
	s.once.Do(func() {
		s.stop(reason)
		s.wire.abort()
		_ = s.link.Close()
	})
}

// drain tells the hub that this session is to end. The hub, which knows its
// streams, ends it when the last one has.
func (s *agentSession) drain(reason string) {
	if err := s.door.drain(reason); err != nil {
		s.end(fmt.Errorf("%w: drain: %w", ErrLost, err))
	}
}

// serve runs HTTP/2 until the connection ends.
func (s *agentSession) serve() {
	s.agent.http2.serve(s.life, s.wire, s)
	s.end(fmt.Errorf("%w: %w", ErrLost, errEnded))
}

var errEnded = errors.New("HTTP/2 ended")

// ServeHTTP leads a request to its door, and a raw stream to the HTTP/1.1
// server of that door.
func (s *agentSession) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	door, err := ParseDoor(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	handler, err := s.handler(door, r.Method)
	if err != nil {
		http.Error(w, err.Error(), StatusCode(err))
		return
	}
	if err := s.slots.acquire(door); err != nil {
		http.Error(w, err.Error(), StatusCode(err))
		return
	}
	defer s.slots.release(door)
	if r.Method != http.MethodConnect {
		handler.ServeHTTP(w, r)
		return
	}
	s.serveRaw(w, r, door, handler)
}

// handler finds who answers at a door.
func (s *agentSession) handler(door, method string) (http.Handler, error) {
	if door == DoorControl && method != http.MethodConnect {
		return s.door.handler, nil
	}
	select {
	case <-s.door.agreed:
	default:
		return nil, fmt.Errorf("door %q: %w: no hello yet", door, ErrNotConnected)
	}
	handler := s.agent.config.Doors[door]
	if handler == nil {
		return nil, fmt.Errorf("door %q: %w of this agent", door, ErrDoor)
	}
	return handler, nil
}

func (s *agentSession) serveRaw(w http.ResponseWriter, r *http.Request, door string, handler http.Handler) {
	st := &agentStream{
		stream:  stream{in: newBuffer(), out: newBuffer(), local: addr(door), remote: "hub"},
		handler: handler,
	}
	if !s.agent.raw.deliver(st) {
		http.Error(w, "agent is shutting down", http.StatusServiceUnavailable)
		return
	}
	st.serve(w, r)
}

// ending ends the session a moment later, unless the hub closes it first.
func (s *agentSession) ending(reason error) {
	time.AfterFunc(shutdownGrace, func() { s.end(reason) })
}

// farewell is why the hub ended the session in order: what it announced, if it
// did.
func (s *agentSession) farewell() error {
	if announced := context.Cause(s.replace); announced != nil {
		return fmt.Errorf("%w: %w", ErrClosed, announced)
	}
	return fmt.Errorf("%w: by the hub", ErrClosed)
}
