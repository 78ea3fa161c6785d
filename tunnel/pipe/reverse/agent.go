// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // net/http, which is recommended instead, takes no connection made elsewhere
package reverse

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/stream"
)

const (
	// streamWindow is what Go's HTTP/2 client gives a stream, in both
	// directions.
	streamWindow = 4 << 20
	// waiting is how many streams may wait for Accept.
	waiting = 16
)

// AgentConfig says how an agent process connects.
type AgentConfig = pipe.AgentConfig

// Dial connects to the hub once and returns when the hub serves the agent.
// The context bounds the attempt and not the link. Errors wrap pipe.ErrRefused
// when the hub said no, pipe.ErrLost when the connection broke, or come from
// the network and TLS.
func Dial(ctx context.Context, config AgentConfig) (pipe.Link, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("reverse %w", err)
	}
	conn, err := config.Connect(ctx, alpn)
	if err != nil {
		return nil, config.Named(err)
	}
	l := &link{
		config:   config,
		raw:      conn.NetConn(),
		accepted: make(chan *stream.Conn, waiting),
		serving:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	go l.serve(conn)
	return config.Await(ctx, l, l.serving)
}

// link is the agent's end of one connection.
type link struct {
	config   AgentConfig
	raw      net.Conn
	accepted chan *stream.Conn
	// serving is closed when the hub said that it serves the agent.
	serving   chan struct{}
	serveOnce sync.Once
	done      chan struct{}

	mu  sync.Mutex
	err error // why done is closed
}

var _ pipe.Link = (*link)(nil)

// serve is the HTTP/2 server of the connection.
func (l *link) serve(conn net.Conn) {
	server := &http2.Server{
		ReadIdleTimeout:              keepaliveTime,
		PingTimeout:                  keepaliveTimeout,
		MaxUploadBufferPerStream:     streamWindow,
		MaxUploadBufferPerConnection: streamWindow,
	}
	// The connection is given as a plain one: HTTP/2 would insist on its ALPN.
	server.ServeConn(&watchedConn{Conn: conn, closed: l.lost}, &http2.ServeConnOpts{Handler: l})
	l.lost()
}

// ServeHTTP answers the hub.
func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		l.connect(w, r)
		return
	}
	switch r.URL.Path {
	case processPath:
		w.Header().Set(processHeader, l.config.Process)
	case servePath:
		l.serveOnce.Do(func() { close(l.serving) })
	case refusePath:
		l.end(fmt.Errorf("%w: %.80q", pipe.ErrRefused, r.Header.Get(reasonHeader)))
	default:
		http.NotFound(w, r)
	}
}

// connect serves one stream until either end has ended it.
func (l *link) connect(w http.ResponseWriter, r *http.Request) {
	conn, err := stream.New(stream.Config{
		Local: pipe.Addr(l.config.Process), Remote: pipe.Addr(l.config.Address),
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	select {
	case l.accepted <- conn:
	default:
		http.Error(w, "too many streams wait", http.StatusServiceUnavailable)
		return
	}
	stop := context.AfterFunc(r.Context(), func() { conn.Fail(pipe.StreamEnd("hub", l.Err())) })
	defer stop()
	received := make(chan struct{})
	go func() {
		defer close(received)
		conn.Fail(pipe.StreamEnd("hub", receive(conn, r.Body)))
	}()
	conn.Fail(pipe.StreamEnd("hub", send(w, conn)))
	_ = r.Body.Close() // The stream is over either way.
	<-received
}

// send moves what is written to a stream to the hub until one of them ends.
func send(w http.ResponseWriter, conn *stream.Conn) error {
	response := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	for {
		if err := response.Flush(); err != nil {
			return err
		}
		p, err := conn.Next()
		if err != nil {
			return err
		}
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
}

// Accept returns the next stream that the hub opened.
func (l *link) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.done:
		return nil, fmt.Errorf("link to %s: %w", l.config.Address, l.Err())
	}
}

// Done is closed when the connection to the hub has ended.
func (l *link) Done() <-chan struct{} { return l.done }

// Err says why Done is closed.
func (l *link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close closes the TCP connection and the streams on it.
func (l *link) Close() error {
	l.end(pipe.ErrClosed)
	return nil
}

func (l *link) lost() { l.end(pipe.ErrLost) }

// end ends the link once, for the first reason given.
func (l *link) end(reason error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = reason
		close(l.done)
	}
	l.mu.Unlock()
	if first {
		_ = l.raw.Close() // Gone either way.
	}
}
