// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spokelet/spokelet/tunnel/control"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// shutdownGrace is how long an ending session waits for HTTP/2's own farewell.
const shutdownGrace = time.Second

// ServePipe makes a session of a pipe and returns when it has ended. It is
// pipe.Handler's, for the hub ends of pipes.
func (s *Server) ServePipe(ctx context.Context, peer pipe.Peer, p pipe.Pipe) {
	log := s.config.Logger.WithValues("cluster", peer.Cluster.Name, "process", peer.Process, "remote", peer.Remote.String())
	ctx, leave, err := s.enter(ctx, peer.Cluster.Name)
	if err != nil {
		return
	}
	defer leave()
	began := time.Now()
	session, err := s.open(ctx, peer, p)
	s.metrics.opened(time.Since(began), err)
	if err != nil {
		log.Info("session refused", "reason", err.Error())
		return
	}
	log.V(1).Info("session opened", "version", session.hello.Version, "protocol", session.hello.Protocol)
	for _, older := range s.sessions.add(session) {
		go older.endAfter(older.slots.drain(), fmt.Errorf("%w: replaced by a newer session", ErrClosed))
	}
	// Authorities that went while it was set up: Trust did not see it yet.
	s.verifyAgain(session)
	s.run(session)
	err = session.Err()
	s.sessions.remove(session, err)
	s.metrics.ended(peer.Cluster.Name, err)
	log.Info("session ended", "reason", err.Error())
}

// open leads a pipe to a session that may be used: bytes, TLS, HTTP/2, hellos,
// admission, within Limits.HandshakeTimeout.
func (s *Server) open(ctx context.Context, peer pipe.Peer, p pipe.Pipe) (*Session, error) {
	timely, cancel := context.WithTimeout(ctx, s.config.Limits.HandshakeTimeout)
	defer cancel()
	wire, chain, err := s.secure(timely, peer, p)
	if err != nil {
		return nil, err
	}
	session, err := s.newSession(peer, wire, chain, p.Close)
	if err != nil {
		wire.abort()
		return nil, err
	}
	// From here on the end of the pipe, of the attempt and of the certificate
	// are the session's.
	context.AfterFunc(ctx, func() { session.end(endOf(ctx)) })
	late := context.AfterFunc(timely, func() { session.end(fmt.Errorf("%w: no hello: %w", ErrLost, timely.Err())) })
	err = s.greet(timely, session)
	if err == nil && !late() {
		err = session.Err()
	}
	if err != nil {
		session.end(err)
		return nil, err
	}
	return session, nil
}

// endOf tells the end of a pipe from that which this hub wanted.
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w: pipe ended", ErrLost)
	}
	return cause
}

// secure dials the agent through the pipe and makes sure it is the one that the
// pipe belongs to, by the chain that is returned.
func (s *Server) secure(ctx context.Context, peer pipe.Peer, p pipe.Pipe) (*flowConn, []*x509.Certificate, error) {
	cert, authorities, err := s.config.TLS()
	if err != nil {
		return nil, nil, fmt.Errorf("hub certificate: %w", err)
	}
	raw, err := p.Dial(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("dial agent: %w", err)
	}
	conn := tls.Client(raw, hubSessionTLS(cert, authorities, peer.Cluster))
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, fmt.Errorf("session TLS: %w", err)
	}
	return newFlowConn(conn, raw, true, s.config.Limits.StreamWindow), conn.ConnectionState().PeerCertificates, nil
}

func (s *Server) newSession(peer pipe.Peer, wire *flowConn, chain []*x509.Certificate, kill func() error) (*Session, error) {
	conn, err := newClientConn(wire, s.config.Limits)
	if err != nil {
		return nil, fmt.Errorf("session HTTP/2: %w", err)
	}
	leaf := chain[0]
	session := &Session{
		cluster:   peer.Cluster,
		remote:    peer.Remote,
		wire:      wire,
		conn:      conn,
		kill:      kill,
		slots:     newSlots(peer.Cluster.Name, s.config.Limits),
		rule:      newWindowRule(s.config.Limits),
		peer:      chain,
		notBefore: leaf.NotBefore,
		notAfter:  leaf.NotAfter,
		since:     time.Now(),
	}
	session.life, session.stop = context.WithCancelCause(context.Background())
	session.slots.changed = session.adapt
	return session, nil
}

// greet exchanges hellos and asks for admission.
func (s *Server) greet(ctx context.Context, session *Session) error {
	door, err := openControl(session.life, session, s.local)
	if err != nil {
		return err
	}
	session.door = door
	session.hello, err = door.agree()
	if err != nil {
		s.metrics.refuse(session.cluster.Name, refusedProtocol)
		return err
	}
	if err := s.config.Admission.AdmitSpoke(ctx, session.cluster, session.hello.KubeSystemUID); err != nil {
		s.metrics.refuse(session.cluster.Name, refusedAdmission)
		// The agent's owner is to read why, so the refusal is delivered before
		// the connection goes.
		err = fmt.Errorf("%w: %w", ErrRefused, err)
		_ = door.drain(err.Error())
		session.farewell(err)
		return err
	}
	return nil
}

// run keeps a session until it has ended.
func (s *Server) run(session *Session) {
	expiry := time.AfterFunc(time.Until(session.notAfter), func() { session.end(ErrExpired) })
	defer expiry.Stop()
	go s.converse(session)
	session.keepalive(s.config.Limits)
	<-session.Done()
}

// converse serves the control door until the conversation ends, and with it the
// session.
func (s *Server) converse(session *Session) {
	roles := newRolePace(func(standby bool) { s.roleChanged(session, standby) })
	defer roles.stop()
	for {
		event, err := session.door.receive()
		if errors.Is(err, io.EOF) {
			session.end(fmt.Errorf("%w: by the agent", ErrClosed))
			return
		}
		if err != nil {
			session.end(fmt.Errorf("%w: control: %w", ErrLost, err))
			return
		}
		switch e := event.(type) {
		case control.RenewalRequested:
			go s.renew(session, e.CSR)
		case control.RoleChanged:
			roles.change(e.Standby)
		case control.Draining:
			reason := fmt.Errorf("%w: %s", ErrDraining, e.Reason)
			done := session.slots.drain()
			s.sessions.retire(session, reason)
			go session.endAfter(done, fmt.Errorf("%w: %w", ErrClosed, reason))
		}
	}
}
