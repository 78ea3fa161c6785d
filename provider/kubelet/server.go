// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/internal/quota"
)

const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 45 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10
)

// connectionLimits are the limits of those of one node's port. A stranger's request is answered
// within its time, TLS and the API server's review included.
func connectionLimits() connlimit.Limits {
	return connlimit.Limits{Unauthorized: 64, Idle: 64, UnauthorizedTimeout: 10 * time.Second}
}

// Door opens the way to the cluster of a node. The error of a cluster that is not
// connected names the cluster and the reason.
type Door interface {
	RoundTripper(ctx context.Context, node string) (http.RoundTripper, error)
}

// DoorFunc is a Door.
type DoorFunc func(ctx context.Context, node string) (http.RoundTripper, error)

// RoundTripper calls f.
func (f DoorFunc) RoundTripper(ctx context.Context, node string) (http.RoundTripper, error) {
	return f(ctx, node)
}

// Pods are the hub's pods of the virtual nodes. They are not changed.
type Pods interface {
	// Pod returns a pod that is bound to a node.
	Pod(node, namespace, name string) (*corev1.Pod, bool)
	// Pods returns all of a node's.
	Pods(node string) []*corev1.Pod
}

// Dialer opens raw streams to the doors of a cluster. A Door's RoundTripper that
// is one, as the session of a tunnel is, carries exec, attach and port-forward.
// A stream should have CloseWrite() error, Abort(error) to end it so that the
// cluster sees an error, and may have Feed, as those of a session.
type Dialer interface {
	Dial(ctx context.Context, door string) (net.Conn, error)
}

// Config configures a Server. All fields are needed but Address, Pods, Memory,
// Streams and Logger.
type Config struct {
	// Address is the IP to listen on; empty means all.
	Address string

	// Certificate is asked in every handshake, and so may rotate.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Door          Door
	// Pods are those whose logs, streams and figures are served; nil serves none.
	Pods Pods
	// Memory is what answers with figures are held on, by cluster; nil has no bounds.
	Memory *quota.Memory
	// Streams are those of users through all doors, by cluster; nil has no bounds.
	Streams *quota.Slots
	Logger  logr.Logger
}

// Validate reports what is missing.
func (c Config) Validate() error {
	if c.Certificate == nil || c.Authenticator == nil || c.Authorizer == nil || c.Door == nil {
		return errors.New("kubelet endpoint needs a certificate, an authenticator, an authorizer and a door")
	}
	return nil
}

// Server holds the endpoints of all nodes.
type Server struct {
	config Config
	limits streamLimits

	mu      sync.Mutex // guards servers
	servers map[string]*nodeServer
}

// nodeServer is the endpoint of one node.
type nodeServer struct {
	*http.Server
	closeStreams context.CancelFunc // ends the streams, which the http.Server does not know
	done         chan struct{}      // closed when the port is free
}

// New returns a Server without endpoints.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Server{config: config, limits: newStreamLimits(config.Streams), servers: map[string]*nodeServer{}}, nil
}

// Open serves the endpoint of a node on a port. A node has one at most: opening
// another closes the first. ctx bounds the opening alone.
func (s *Server) Open(ctx context.Context, node string, port int32) error {
	address := net.JoinHostPort(s.config.Address, strconv.Itoa(int(port)))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("kubelet endpoint of node %s: %w", node, err)
	}
	s.serve(ctx, node, listener)
	return nil
}

// Close ends the endpoint of a node, every connection to it and every stream. When
// it returns, the port is free. A node without an endpoint is left alone.
func (s *Server) Close(node string) {
	s.mu.Lock()
	old := s.servers[node]
	delete(s.servers, node)
	s.mu.Unlock()
	if old != nil {
		old.closeStreams()
		_ = old.Close() // closes what it can; there is nothing else to be done
		// It does not know its listener before it serves.
		<-old.done
	}
}

func (s *Server) serve(ctx context.Context, node string, listener net.Listener) {
	s.Close(node)
	server := s.newNodeServer(ctx, node)
	s.mu.Lock()
	s.servers[node] = server
	s.mu.Unlock()
	go func() {
		defer close(server.done)
		// The certificate comes from TLSConfig.
		if err := server.ServeTLS(connlimit.New(listener, connectionLimits()), "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.config.Logger.Error(err, "kubelet endpoint ended", "node", node)
		}
	}()
}

// newNodeServer is the one place where an endpoint's limits are set. They are those of
// requests that are answered at once; logs lift them, and streams do not have
// them. It outlives ctx.
func (s *Server) newNodeServer(ctx context.Context, node string) *nodeServer {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	return &nodeServer{closeStreams: end, done: make(chan struct{}), Server: &http.Server{
		BaseContext:       func(net.Listener) context.Context { return life },
		Handler:           &endpoint{node: node, config: s.config, limits: s.limits, life: life},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       connlimit.Context,
		// Handshakes fail as often as somebody scans the port.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.config.Logger.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.config.Certificate,
			// The authenticator verifies it, against a CA that may rotate.
			ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"h2", "http/1.1"},
		},
	}}
}
