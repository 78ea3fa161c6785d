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
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 45 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeaderBytes = 64 << 10
)

// Door opens the way to a connected cluster. The error of a cluster that is not
// connected names the cluster and the reason.
type Door interface {
	RoundTripper(ctx context.Context, cluster string) (http.RoundTripper, error)
}

// DoorFunc is a Door.
type DoorFunc func(ctx context.Context, cluster string) (http.RoundTripper, error)

// RoundTripper calls f.
func (f DoorFunc) RoundTripper(ctx context.Context, cluster string) (http.RoundTripper, error) {
	return f(ctx, cluster)
}

// Config configures a Server. All fields are needed but Address and Logger.
type Config struct {
	// Address is the IP to listen on; empty means all.
	Address string

	// Certificate is asked in every handshake, and so may rotate.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Door          Door
	Logger        logr.Logger
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

	mu      sync.Mutex // guards servers
	servers map[string]*http.Server
}

// New returns a Server without endpoints.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Server{config: config, servers: map[string]*http.Server{}}, nil
}

// Open serves the endpoint of a node on a port. A node has one at most: opening
// another closes the first. ctx bounds the opening alone.
func (s *Server) Open(ctx context.Context, node string, port int32) error {
	address := net.JoinHostPort(s.config.Address, strconv.Itoa(int(port)))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("kubelet endpoint of node %s: %w", node, err)
	}
	s.serve(node, listener)
	return nil
}

// Close ends the endpoint of a node and every connection to it. A node without
// one is left alone.
func (s *Server) Close(node string) {
	s.mu.Lock()
	old := s.servers[node]
	delete(s.servers, node)
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // closes what it can; there is nothing else to be done
	}
}

func (s *Server) serve(node string, listener net.Listener) {
	s.Close(node)
	server := s.server(node)
	s.mu.Lock()
	s.servers[node] = server
	s.mu.Unlock()
	go func() {
		// The certificate comes from TLSConfig.
		if err := server.ServeTLS(&port{Listener: listener}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.config.Logger.Error(err, "kubelet endpoint ended", "node", node)
		}
	}()
}

// server is the one place where an endpoint's limits are set.
func (s *Server) server(node string) *http.Server {
	return &http.Server{
		Handler:           &endpoint{node: node, config: s.config},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withVisitor,
		// Handshakes fail as often as somebody scans the port.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.config.Logger.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.config.Certificate,
			// The authenticator verifies it, against a CA that may rotate.
			ClientAuth: tls.RequestClientCert,
			NextProtos: []string{"h2", "http/1.1"},
		},
	}
}
