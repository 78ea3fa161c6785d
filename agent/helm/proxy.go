// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// maxStreams bounds the concurrent requests of a process.
	maxStreams     = 250
	maxHeaderBytes = 64 << 10
)

// clusterProxy forwards the requests of one process to the API server.
type clusterProxy struct {
	proxy *httputil.ReverseProxy
	// ctx is the context of the request for which the process runs.
	ctx          context.Context //nolint:containedctx // the gate lives as long
	beforeChange func(context.Context) error

	mu     sync.Mutex
	begun  bool  // guarded by mu
	closed bool  // guarded by mu
	err    error // guarded by mu: what begin said
}

var errProxyClosed = errors.New("the process of helm has ended")

// newClusterProxy returns a proxy that acts as a requester. The error is the door's.
func (r *Runner) newClusterProxy(ctx context.Context, by wire.Requester, begin func(context.Context) error) (*clusterProxy, error) {
	config, err := r.cfg.Door.Config(by)
	if err != nil {
		return nil, &refusals.AccessError{Err: err}
	}
	config = rest.CopyConfig(config)
	if r.cfg.Guard != nil {
		config.Wrap(r.cfg.Guard)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connection to the cluster: %w", err)
	}
	base, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("connection to the cluster: %w", err)
	}
	errors := slog.NewLogLogger(logr.ToSlogHandler(r.cfg.Logger), slog.LevelDebug)
	return &clusterProxy{ctx: ctx, beforeChange: begin, proxy: &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(base) },
		Transport:     transport,
		FlushInterval: -1, // a watch's events are passed on as they come
		ErrorLog:      errors,
		ErrorHandler:  writeUnavailable,
	}}, nil
}

// ServeHTTP forwards a request. The first one that may change something waits for
// beforeChange, and is not forwarded if that fails.
func (g *clusterProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := g.allowChange(); err != nil {
			writeUnavailable(w, r, err)
			return
		}
	}
	g.proxy.ServeHTTP(w, r)
}

// allowChange calls beforeChange, once, and never after the proxy was closed.
func (g *clusterProxy) allowChange() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errProxyClosed
	}
	if !g.begun {
		g.begun, g.err = true, g.beforeChange(g.ctx)
	}
	return g.err
}

// close refuses further changes, and returns the error of beforeChange. A process that has
// ended may have left a request that was not read yet.
func (g *clusterProxy) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return g.err
}

// writeUnavailable answers instead of an API server that cannot be reached.
func writeUnavailable(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	body, _ := json.Marshal(metav1.Status{ //nolint:errchkjson // plain strings always marshal
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: err.Error(),
	})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(body)
}

// serve serves one connection until stop is called. Timeout bounds the wait for the first
// bytes, and begins before the process at the other end starts, which takes more than ten
// seconds on a busy machine.
func serve(conn net.Conn, handler http.Handler, timeout time.Duration, log logr.Logger) (stop func()) {
	server := &http.Server{
		Handler: handler, Protocols: &http.Protocols{}, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: timeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelDebug),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	listener := &singleListener{conns: make(chan net.Conn, 1), closed: make(chan struct{}), addr: conn.LocalAddr()}
	listener.conns <- conn
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close()
		_ = conn.Close()
		<-served
	}
}

// singleListener is a listener of one connection.
type singleListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
	addr   net.Addr
}

var errListenerClosed = errors.New("the only connection was accepted")

func (s *singleListener) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, errListenerClosed
	}
}

func (s *singleListener) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *singleListener) Addr() net.Addr { return s.addr }
