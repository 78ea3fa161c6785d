// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// streamWindow is how much is received of an answer that nobody reads. Go's own 4 MiB would
	// be memory that a cluster has for each request.
	streamWindow = 32 << 10
	// connectionWindow is more than that for the streams that API servers allow on a
	// connection, so that answers that nobody reads hold up no others.
	connectionWindow = 64 << 20
	maxHeader        = 64 << 10
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
)

// newTransport returns connections to the hub. client-go's own have windows that cannot be set.
func newTransport(kube *rest.Config) (*http.Transport, error) {
	trusted, err := tlsConfig(kube)
	if err != nil {
		return nil, err
	}
	dial := kube.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	proxy := http.ProxyFromEnvironment
	if kube.Proxy != nil {
		proxy = kube.Proxy
	}
	return &http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: trusted, DialTLSContext: dialWithCurrentCA(kube, dial),
		ForceAttemptHTTP2: true, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow},
	}, nil
}

func tlsConfig(kube *rest.Config) (*tls.Config, error) {
	config, err := rest.TLSConfigFor(kube)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"h2", "http/1.1"}
	return config, nil
}

// dialWithCurrentCA reads the hub's authorities for each connection: they may be others by then.
func dialWithCurrentCA(kube *rest.Config, dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := tlsConfig(kube)
		if err != nil {
			return nil, err
		}
		if config.ServerName == "" {
			if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
				return nil, err
			}
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		conn := tls.Client(raw, config)
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close() //nolint:errcheck // it has failed
			return nil, err
		}
		return conn, nil
	}
}
