// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// dialFunc opens a TCP connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// environmentDial honours HTTPS_PROXY and NO_PROXY, as they are when it is
// called.
func environmentDial(ctx context.Context, network, address string) (net.Conn, error) {
	return proxyDial(httpproxy.FromEnvironment().ProxyFunc())(ctx, network, address)
}

// proxyDial dials through the HTTP proxy that proxyFor names for an address, or
// directly where it names none.
func proxyDial(proxyFor func(*url.URL) (*url.URL, error)) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, err := proxyFor(&url.URL{Scheme: "https", Host: address})
		if err != nil {
			return nil, fmt.Errorf("proxy for %s: %w", address, err)
		}
		var dialer net.Dialer
		if proxy == nil {
			return dialer.DialContext(ctx, network, address)
		}
		conn, err := dialViaProxy(ctx, &dialer, proxy, address)
		if err != nil {
			return nil, fmt.Errorf("proxy %s: %w", proxy.Host, err)
		}
		return conn, nil
	}
}

// dialViaProxy asks a proxy for a tunnel, RFC 9110 section 9.3.6.
func dialViaProxy(ctx context.Context, dialer *net.Dialer, proxy *url.URL, address string) (net.Conn, error) {
	conn, err := dialProxy(ctx, dialer, proxy)
	if err != nil {
		return nil, err
	}
	// A proxy that does not answer is left by closing the connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = sendConnect(conn, proxy.User, address)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func dialProxy(ctx context.Context, dialer *net.Dialer, proxy *url.URL) (net.Conn, error) {
	switch proxy.Scheme {
	case "http":
		return dialer.DialContext(ctx, "tcp", withPort(proxy, "80"))
	case "https":
		d := tls.Dialer{NetDialer: dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, "tcp", withPort(proxy, "443"))
	default:
		return nil, fmt.Errorf("scheme %q: %w", proxy.Scheme, errors.ErrUnsupported)
	}
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func sendConnect(conn net.Conn, user *url.Userinfo, address string) error {
	req := &http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Opaque: address},
		Host:   address,
		Header: http.Header{},
	}
	if user != nil {
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(userPassword(user))))
	}
	if err := req.Write(conn); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req) //nolint:bodyclose // what follows is the tunnel, and closing a body would read it
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d to CONNECT %s", resp.StatusCode, address)
	}
	// TLS clients speak first: bytes before that are not the hub's.
	if r.Buffered() > 0 {
		return fmt.Errorf("sent %d bytes after its answer", r.Buffered())
	}
	return nil
}

func userPassword(user *url.Userinfo) string {
	password, _ := user.Password()
	return user.Username() + ":" + password
}
