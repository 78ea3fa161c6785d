// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

const livePath = "/apis/live.spokelet.io/v1alpha1"

// client asks the hub's API server, without a limit of its own.
type client struct {
	http *http.Client
	base *url.URL
	tls  *tls.Config
	user string // impersonated, if any
	dial *connrotation.Dialer
}

func newClient(cfg *rest.Config, user string) (*client, error) {
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	base, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	dial := connrotation.NewDialer((&net.Dialer{}).DialContext)
	var way http.RoundTripper = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: dial.DialContext}
	if user != "" {
		way = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user, Groups: []string{group}}, way)
	}
	return &client{http: &http.Client{Transport: way}, base: base, tls: config, user: user, dial: dial}, nil
}

// close ends connections in use, too: a stream that is just ending is.
func (c *client) close() { c.dial.CloseAll() }

// do returns the body of a successful answer, which the caller closes.
func (c *client) do(ctx context.Context, method, path, accept string, body io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", accept)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if response.StatusCode/100 != 2 {
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return nil, fmt.Errorf("%s: %d: %s", path, response.StatusCode, text)
	}
	return response.Body, nil
}

// drain reads an answer to its end and keeps nothing.
func (c *client) drain(ctx context.Context, path string) error {
	body, err := c.do(ctx, http.MethodGet, path, "*/*", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if _, err := io.Copy(io.Discard, body); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// hold sends a request and reads nothing, not even the status, for a while.
func (c *client) hold(ctx context.Context, path string, lasting time.Duration) error {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.base.Host)
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	defer func() { _ = raw.Close() }()
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10) // of no consequence but for the time it takes to fill
	}
	config := c.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = c.base.Hostname()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	out := bufio.NewWriter(conn)
	fmt.Fprintf(out, "GET %s HTTP/1.1\r\nHost: %s\r\nImpersonate-User: %s\r\nImpersonate-Group: %s\r\n\r\n", path, c.base.Host, c.user, group)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	spoke.Pause(ctx, lasting)
	return nil
}

// earlyHints asks an honest cluster for what is answered with informational answers,
// and reads none of them.
func (s *Site) earlyHints(ctx context.Context) (string, error) {
	const lasting = 10 * time.Second
	path := livePath + "/clusters/" + s.names[0] + "/proxy" + fleet.EarlyHintsPath
	return fmt.Sprintf("held for %s", lasting), s.attacker.hold(ctx, path, lasting)
}
