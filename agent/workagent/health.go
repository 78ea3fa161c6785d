// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	healthTimeout   = 10 * time.Second
	maxHealthHeader = 16 << 10
	// certificateLife is longer than a process lives.
	certificateLife = 10 * 365 * 24 * time.Hour
	// tlsHandshake is the first byte of a TLS connection, and of no request.
	tlsHandshake = 0x16
)

// serveHealth serves /healthz and /metrics until ctx ends. OCM's operator probes
// by HTTPS and never verifies; people and scrapers come by HTTP: the first byte
// tells.
func serveHealth(ctx context.Context, address string, bounds TLS, registry *prometheus.Registry, log logr.Logger) error {
	if address == "" {
		return nil
	}
	certificate, err := newSelfSignedCertificate()
	if err != nil {
		return fmt.Errorf("health port: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("health port: %w", err)
	}
	log.Info("health and metrics are served", "address", listener.Addr().String())
	server := newHealthServer(registry)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	secured := &tls.Config{
		Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"},
		MinVersion: cmp.Or(bounds.MinVersion, tls.VersionTLS12), CipherSuites: bounds.CipherSuites,
	}
	if err := server.Serve(optionalTLSListener{Listener: listener, tls: secured}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health port: %w", err)
	}
	return nil
}

func newHealthServer(registry *prometheus.Registry) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: healthTimeout,
		ReadTimeout:       healthTimeout,
		WriteTimeout:      healthTimeout,
		IdleTimeout:       healthTimeout,
		MaxHeaderBytes:    maxHealthHeader,
	}
}

// optionalTLSListener accepts connections that are TLS or not.
type optionalTLSListener struct {
	net.Listener
	tls *tls.Config
}

// Accept does not wait for the first byte: the connection's own goroutine does.
func (l optionalTLSListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &optionalTLSConn{Conn: conn, tls: l.tls}, nil
}

// optionalTLSConn is TLS or not, from its first byte on. Who serves it reads before it
// writes; who closes it, from elsewhere, closes what is beneath.
type optionalTLSConn struct {
	net.Conn
	tls *tls.Config
	// negotiated is the connection as its peer speaks on it; nil before the first byte.
	negotiated net.Conn
}

// Read looks at the first byte, once.
func (c *optionalTLSConn) Read(p []byte) (int, error) {
	if c.negotiated == nil {
		buffered := bufio.NewReader(c.Conn)
		first, err := buffered.Peek(1)
		if err != nil {
			return 0, err
		}
		plain := bufferedConn{Conn: c.Conn, reader: buffered}
		c.negotiated = plain
		if first[0] == tlsHandshake {
			c.negotiated = tls.Server(plain, c.tls)
		}
	}
	return c.negotiated.Read(p)
}

// Write implements net.Conn.
func (c *optionalTLSConn) Write(p []byte) (int, error) {
	if c.negotiated == nil {
		return c.Conn.Write(p)
	}
	return c.negotiated.Write(p)
}

// bufferedConn is a connection of which some has been read.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (p bufferedConn) Read(b []byte) (int, error) { return p.reader.Read(b) }

// newSelfSignedCertificate is a certificate of this process, known to nobody.
func newSelfSignedCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "spokelet-agent"},
		DNSNames:  []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
