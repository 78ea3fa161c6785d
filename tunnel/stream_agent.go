// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/tunnel/bufconn"
)

// Limits of the HTTP/1.1 server behind raw streams.
const (
	rawHeaderTimeout = 30 * time.Second
	rawIdleTimeout   = 90 * time.Second
)

// agentStream is the agent's end of a raw stream. It has no CloseWrite: an
// HTTP/2 server ends its direction by ending the stream.
type agentStream struct {
	bufconn.Conn
	handler http.Handler
}

// Close ends the stream in order, after what was written.
func (s *agentStream) Close() error {
	s.Out.CloseWrite(io.EOF)
	s.In.CloseRead(net.ErrClosed)
	return nil
}

// Abort ends the stream so that the hub sees an error. Handlers that hijack
// the connection may use it where a Close would look like success.
func (s *agentStream) Abort(reason error) {
	s.Out.CloseWrite(abortError(reason))
	s.In.CloseRead(net.ErrClosed)
}

// serve moves the bytes of a raw stream through its HTTP/2 request until the
// agent's side ends it. It panics with http.ErrAbortHandler unless that end is
// in order, which is how net/http resets a stream.
func (s *agentStream) serve(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w).Flush
	w.WriteHeader(http.StatusOK)
	if err := flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	go s.receive(r.Body)
	for {
		err := s.send(w)
		if err == io.EOF { //nolint:errorlint // an error that wraps io.EOF is no end in order
			return
		}
		if err == nil {
			err = flush()
		}
		if err != nil {
			s.Out.CloseRead(ErrAborted)
			s.In.CloseWrite(ErrAborted)
			panic(http.ErrAbortHandler)
		}
	}
}

// send waits for bytes that were written, and sends them.
func (s *agentStream) send(w io.Writer) error {
	p, block, err := s.Out.Next()
	if err != nil {
		return err
	}
	defer bufpool.Put(block)
	_, err = w.Write(p)
	return err
}

// receive moves what the hub sends. When the hub cuts the stream, writes fail too; a
// clean end leaves the agent's direction open.
func (s *agentStream) receive(body io.Reader) {
	err := bufpool.Copy(s.In, body)
	if err == nil {
		s.In.CloseWrite(io.EOF)
		return
	}
	s.In.CloseWrite(abortError(err))
	if !errors.Is(err, net.ErrClosed) {
		s.Out.CloseRead(ErrAborted)
	}
}

// rawServer serves raw streams as HTTP/1.1 connections, each by the handler of
// its door. It is a net.Listener without a socket.
type rawServer struct {
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newRawServer() *rawServer {
	s := &rawServer{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.server = newHTTPServer(http.HandlerFunc(serveRaw))
	s.server.ConnContext = withStream
	return s
}

// newHTTPServer is where every HTTP server of this package gets its limits.
func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: rawHeaderTimeout,
		IdleTimeout:       rawIdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

type streamKey struct{}

func withStream(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, streamKey{}, conn)
}

func serveRaw(w http.ResponseWriter, r *http.Request) {
	s, ok := r.Context().Value(streamKey{}).(*agentStream)
	if !ok {
		http.Error(w, "connection is not a raw stream", http.StatusInternalServerError)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// run serves until close.
func (s *rawServer) run() { _ = s.server.Serve(s) }

// deliver hands a stream to the server; false when that has been closed.
func (s *rawServer) deliver(conn net.Conn) bool {
	select {
	case s.conns <- conn:
		return true
	case <-s.closed:
		return false
	}
}

// Accept returns the next raw stream.
func (s *rawServer) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (s *rawServer) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr names the listener.
func (s *rawServer) Addr() net.Addr { return bufconn.Addr("raw") }

// close ends the server and what is left of its connections.
func (s *rawServer) close() {
	_ = s.Close()
	_ = s.server.Close()
}
