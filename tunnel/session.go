// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spokelet/spokelet/tunnel/control"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// Session is the hub's end of one live connection to an agent process. Its
// methods may be called at once from many goroutines.
type Session struct {
	cluster   identity.Cluster
	remote    net.Addr
	flow      *flowConn
	conn      *clientConn
	closePipe func() error // closes the agent's TCP connection
	streams   *streamCounter
	// drainReason is why the session ends, set once it has no streams and ends in order.
	drainReason atomic.Pointer[error]
	// peerChain is the chain that the agent showed, its own certificate first: it is
	// verified again when the authorities change.
	peerChain []*x509.Certificate
	// notBefore and notAfter bound the life of the agent's certificate.
	notBefore, notAfter time.Time
	connectedAt         time.Time
	window              *windowSizer
	rank                int          // guarded by Sessions.mu once the session is registered
	rtt                 atomic.Int64 // smoothed, in nanoseconds; 0 before the first ping

	hello   control.Agreement // set before the session is registered
	control *hubControl       // the hub's end of the control door; the same

	// ctx ends with the session; its cause is why.
	ctx       context.Context
	cancel    context.CancelCauseFunc
	closeOnce sync.Once
}

// Info describes a session at one moment.
type Info struct {
	Cluster       string
	ClusterID     string
	ProcessID     string
	AgentVersion  string
	Protocol      uint32
	Features      []string
	KubeSystemUID string
	RemoteAddress string
	ConnectedAt   time.Time
	// RTT is the smoothed round trip of the session's pings; 0 before the first.
	RTT time.Duration
	// Streams is the number of open streams, the session's own included.
	Streams int
	// Draining sessions take no new streams.
	Draining bool
	// CertificateNotAfter is when the session ends unless it is renewed.
	CertificateNotAfter time.Time
	// BytesIn and BytesOut count what the session carried, above TLS.
	BytesIn, BytesOut int64
}

// Cluster is who the verified certificate says is on the other end.
func (s *Session) Cluster() identity.Cluster { return s.cluster }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Err is nil while the session lives, then why it ended: it wraps ErrLost,
// ErrUnresponsive, ErrExpired, ErrUntrusted, ErrClosed or the reason given to Disconnect.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Info describes the session as it is now.
func (s *Session) Info() Info {
	t := s.traffic()
	return Info{
		Cluster:             s.cluster.Name,
		ClusterID:           s.cluster.ID,
		ProcessID:           s.hello.ProcessID,
		AgentVersion:        s.hello.Version,
		Protocol:            s.hello.Protocol,
		Features:            s.hello.Features,
		KubeSystemUID:       s.hello.KubeSystemUID,
		RemoteAddress:       s.remote.String(),
		ConnectedAt:         s.connectedAt,
		RTT:                 time.Duration(s.rtt.Load()),
		Streams:             s.streams.openStreams(),
		Draining:            s.streams.isDraining(),
		CertificateNotAfter: s.notAfter,
		BytesIn:             t.in,
		BytesOut:            t.out,
	}
}

func (s *Session) processID() string { return s.hello.ProcessID }

func (s *Session) traffic() traffic { return s.flow.traffic() }

// Discard ends this session alone with reason, at once: another one of its
// cluster, if there is one, comes into use. The agent process may dial again.
func (s *Session) Discard(reason error) { s.closeWith(reason) }

// closeWith closes the session and its pipe at once. The first reason counts. It never
// blocks on the network: only closing its TCP connection frees a wedged peer.
func (s *Session) closeWith(reason error) {
	s.closeOnce.Do(func() {
		if parting := s.drainReason.Load(); parting != nil {
			reason = *parting
		}
		s.cancel(reason)
		s.flow.abort()
		_ = s.closePipe()
	})
}

// RoundTrip sends a request to the door that the URL's host names, for example
// http://kube/api/v1/nodes; it makes *Session an http.RoundTripper. Errors
// before an answer name the cluster and wrap ErrDoor, ErrDraining, ErrBusy (the
// request was not sent) or the session's end. A body that is cut short ends in
// an error, never in io.EOF. 1xx answers are dropped, and no hook of the
// request's context (net/http/httptrace) is called.
func (s *Session) RoundTrip(req *http.Request) (*http.Response, error) {
	door, err := ParseDoor(req.URL.Host)
	if err == nil && req.Method == http.MethodConnect {
		err = fmt.Errorf("method CONNECT is for Dial: %w", ErrDoor)
	}
	if err != nil {
		closeBody(req)
		return nil, s.wrapError(err)
	}
	if err := s.acquire(door); err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := s.conn.RoundTrip(outgoingRequest(req, door))
	if err != nil {
		s.streams.release(door)
		return nil, s.streamError(err)
	}
	if resp.Body == http.NoBody {
		s.streams.release(door)
		return resp, nil
	}
	resp.Body = &responseBody{ReadCloser: resp.Body, session: s, door: door}
	return resp, nil
}

// outgoingRequest returns the request as the session sends it, a shallow copy where
// that is not as the caller made it.
func outgoingRequest(req *http.Request, door string) *http.Request {
	ctx, hidden := withoutTrace(req.Context())
	// The agent goes by the authority. A caller's Host, such as that of a
	// request which it proxies, must not choose another door.
	otherHost := req.Host != "" && req.Host != door
	if !hidden && !otherHost {
		return req
	}
	req = req.WithContext(ctx)
	if otherHost {
		req.Host = door
	}
	return req
}

func (s *Session) acquire(door string) error {
	if err := s.Err(); err != nil {
		return &NotConnectedError{Cluster: s.cluster.Name, Reason: err}
	}
	err := s.streams.acquire(door)
	if errors.Is(err, ErrDraining) {
		return s.wrapError(err)
	}
	return err
}

// streamError returns the error of a stream, or that of the session if it has ended.
func (s *Session) streamError(err error) error {
	if end := s.Err(); end != nil {
		return s.wrapError(end)
	}
	return s.wrapError(err)
}

func (s *Session) wrapError(err error) error {
	return fmt.Errorf("cluster %q: %w", s.cluster.Name, err)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// responseBody releases the stream when the caller has read or closed it.
type responseBody struct {
	io.ReadCloser
	session  *Session
	door     string
	released atomic.Bool
}

// Read reads the answer. Its error is io.EOF only when the agent ended it.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.release()
	if errors.Is(err, io.EOF) {
		return n, err
	}
	return n, b.session.streamError(err)
}

// Close ends the stream.
func (b *responseBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

func (b *responseBody) release() {
	if b.released.CompareAndSwap(false, true) {
		b.session.streams.release(b.door)
	}
}
