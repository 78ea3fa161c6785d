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

// shutdownGrace is how long an ending session waits for the shutdown of HTTP/2.
const shutdownGrace = time.Second

// ServePipe serves the session of a pipe and returns when it has ended.
func (s *Server) ServePipe(ctx context.Context, peer pipe.Peer, p pipe.Pipe) {
	log := s.config.Logger.WithValues("cluster", peer.Cluster.Name, "process", peer.Process, "remote", peer.Remote.String())
	ctx, leave, err := s.startAttempt(ctx, peer.Cluster.Name)
	if err != nil {
		return
	}
	defer leave()
	began := time.Now()
	session, err := s.openSession(ctx, peer, p)
	s.metrics.recordDial(time.Since(began), err)
	if err != nil {
		log.Info("session refused", "reason", err.Error())
		return
	}
	log.V(1).Info("session opened", "version", session.hello.Version, "protocol", session.hello.Protocol)
	for _, older := range s.sessions.add(session) {
		go older.closeAfter(older.streams.drain(), fmt.Errorf("%w: replaced by a newer session", ErrClosed))
	}
	// Authorities may have been removed while it was set up: Trust did not see it.
	s.closeUntrusted(session)
	s.maintain(session)
	err = session.Err()
	s.sessions.remove(session, err)
	s.metrics.recordEnd(peer.Cluster.Name, err)
	log.Info("session ended", "reason", err.Error())
}

// openSession opens the session of a pipe within Limits.HandshakeTimeout: stream, TLS,
// HTTP/2, hellos, admission.
func (s *Server) openSession(ctx context.Context, peer pipe.Peer, p pipe.Pipe) (*Session, error) {
	timely, cancel := context.WithTimeout(ctx, s.config.Limits.HandshakeTimeout)
	defer cancel()
	wire, chain, err := s.dialSession(timely, peer, p)
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
	context.AfterFunc(ctx, func() { session.closeWith(closeCause(ctx)) })
	late := context.AfterFunc(timely, func() { session.closeWith(fmt.Errorf("%w: no hello: %w", ErrLost, timely.Err())) })
	err = s.exchangeHellos(timely, session)
	if err == nil && !late() {
		err = session.Err()
	}
	if err != nil {
		session.closeWith(err)
		return nil, err
	}
	return session, nil
}

// closeCause returns the reason for which this hub ended a pipe, or ErrLost.
func closeCause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w: pipe ended", ErrLost)
	}
	return cause
}

// dialSession dials the agent through the pipe. TLS verifies that it is the one that
// the pipe belongs to, by the chain that is returned.
func (s *Server) dialSession(ctx context.Context, peer pipe.Peer, p pipe.Pipe) (*flowConn, []*x509.Certificate, error) {
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
		cluster:     peer.Cluster,
		remote:      peer.Remote,
		flow:        wire,
		conn:        conn,
		closePipe:   kill,
		streams:     newStreamCounter(peer.Cluster.Name, s.config.Limits),
		window:      newWindowSizer(s.config.Limits),
		peerChain:   chain,
		notBefore:   leaf.NotBefore,
		notAfter:    leaf.NotAfter,
		connectedAt: time.Now(),
	}
	session.ctx, session.cancel = context.WithCancelCause(context.Background())
	session.streams.onChange = session.updateWindow
	return session, nil
}

// exchangeHellos exchanges hellos and calls Admission.AdmitSpoke.
func (s *Server) exchangeHellos(ctx context.Context, session *Session) error {
	door, err := openControl(session.ctx, session, s.hello)
	if err != nil {
		return err
	}
	session.control = door
	session.hello, err = door.waitForHello()
	if err != nil {
		s.metrics.countRefusal(session.cluster.Name, refusedProtocol)
		return err
	}
	if err := s.config.Admission.AdmitSpoke(ctx, session.cluster, session.hello.KubeSystemUID); err != nil {
		s.metrics.countRefusal(session.cluster.Name, refusedAdmission)
		// The agent's owner is to read the reason, so the refusal is delivered before
		// the connection closes.
		err = fmt.Errorf("%w: %w", ErrRefused, err)
		_ = door.sendDrain(err.Error())
		session.shutDown(err)
		return err
	}
	return nil
}

// maintain serves an open session until it has ended.
func (s *Server) maintain(session *Session) {
	expiry := time.AfterFunc(time.Until(session.notAfter), func() { session.closeWith(ErrExpired) })
	defer expiry.Stop()
	go s.serveControl(session)
	session.keepalive(s.config.Limits)
	<-session.Done()
}

// serveControl handles the events of the control stream until it ends, and with it the
// session.
func (s *Server) serveControl(session *Session) {
	roles := newRoleLimiter(func(standby bool) { s.handleRole(session, standby) })
	defer roles.stop()
	for {
		event, err := session.control.receiveEvent()
		if errors.Is(err, io.EOF) {
			session.closeWith(fmt.Errorf("%w: by the agent", ErrClosed))
			return
		}
		if err != nil {
			session.closeWith(fmt.Errorf("%w: control: %w", ErrLost, err))
			return
		}
		switch e := event.(type) {
		case control.RenewalRequested:
			go s.renew(session, e.CSR)
		case control.RoleChanged:
			roles.set(e.Standby)
		case control.Draining:
			reason := fmt.Errorf("%w: %s", ErrDraining, e.Reason)
			done := session.streams.drain()
			s.sessions.withdraw(session, reason)
			go session.closeAfter(done, fmt.Errorf("%w: %w", ErrClosed, reason))
		}
	}
}
