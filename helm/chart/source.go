// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/spokelet/spokelet/agent/helm/message"
)

const (
	// maxArchive bounds an archive as it is sent. Helm keeps charts in Secrets of 1 MiB.
	maxArchive = 8 << 20
	// maxIndex bounds the index of a repository, and maxValues a file of values.
	maxIndex  = 8 << 20
	maxValues = 1 << 20
	// readTimeout bounds the reading of one thing, whatever it takes.
	readTimeout = time.Minute
	// answerTimeout bounds the wait for an answer to begin.
	answerTimeout = 20 * time.Second
)

var (
	// ErrTooLarge is of what is larger than anybody needs.
	ErrTooLarge = errors.New("too large")
	// ErrTooLong is of what is not read in time.
	ErrTooLong = errors.New("the server takes too long")
	// ErrUnavailable is of a server that does not answer, or only with an error of its
	// own. Another try may end otherwise.
	ErrUnavailable = errors.New("the server is unavailable")
)

// Source reads charts and values.
type Source struct{ client *http.Client }

// NewSource returns a source of what is allowed. Insecure does not check the certificates
// of servers.
func NewSource(allowed Allowed, insecure bool) *Source {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: answerTimeout, ResponseHeaderTimeout: answerTimeout,
		TLSClientConfig:    &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure}, //nolint:gosec // who asks may say so; he has the rights of his own in any case
		DisableCompression: true, DisableKeepAlives: true,
		MaxResponseHeaderBytes: 1 << 20,
	}
	return &Source{client: &http.Client{Transport: &allowListTransport{allowed: allowed, next: transport}}}
}

// allowListTransport holds each request to the list: those that a redirect leads to as well.
type allowListTransport struct {
	allowed Allowed
	next    http.RoundTripper
}

func (g *allowListTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.allowed.Check(r.URL); err != nil {
		return nil, err
	}
	response, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Nothing that is read is larger; a registry's answers are read by a library.
	response.Body = &limited{ReadCloser: response.Body, left: max(maxArchive, maxIndex)}
	return response, nil
}

// limited ends in ErrTooLarge where a body should have ended.
type limited struct {
	io.ReadCloser
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, ErrTooLarge
	}
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	l.left -= int64(n)
	if l.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err
}

// Values reads a file of values.
func (s *Source) Values(ctx context.Context, location string) ([]byte, error) {
	u, err := parseURL(location)
	if err == nil && u.Scheme == schemeOCI {
		err = fmt.Errorf("%w: values are read by HTTP", ErrURL)
	}
	if err != nil {
		return nil, fmt.Errorf("values %q: %w", location, err)
	}
	raw, err := s.download(ctx, u, maxValues)
	if err != nil {
		return nil, fmt.Errorf("values %s: %w", u.Redacted(), classify(err))
	}
	return raw, nil
}

// download reads what is at a URL.
func (s *Source) download(ctx context.Context, u *url.URL, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, unwrapURL(u, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	switch code := response.StatusCode; {
	case isTemporary(code):
		return nil, fmt.Errorf("%w: it answers %d", ErrUnavailable, code)
	case code != http.StatusOK:
		return nil, fmt.Errorf("the server answers %d", code)
	}
	raw, err := io.ReadAll(&limited{ReadCloser: response.Body, left: limit})
	switch {
	case errors.Is(err, ErrTooLarge):
		return nil, fmt.Errorf("%w: the limit is %d MiB", ErrTooLarge, limit>>20)
	case ctx.Err() != nil:
		// A server may end its answer in good order because the request is cancelled.
		return nil, context.Cause(ctx)
	}
	return raw, err
}

// isTemporary tells the codes of servers that may answer otherwise another time.
func isTemporary(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// classify says what kind an error of a server is, if the network or a library reports it.
func classify(err error) error {
	var (
		connection *net.OpError
		name       *net.DNSError
		answer     *errcode.ErrorResponse
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrTooLong, err)
	case errors.As(err, &name) && name.IsNotFound: // nor will it be there the next time
		return err
	case errors.As(err, &connection) && connection.Op != "remote error", // an alert of TLS
		errors.As(err, &answer) && isTemporary(answer.StatusCode):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return err
	}
}

// unwrapURL leaves out the URL where it is the one that was asked for, which a caller
// names. That of a redirect is news.
func unwrapURL(asked *url.URL, err error) error {
	var at *url.Error
	if errors.As(err, &at) && at.URL == asked.String() {
		return at.Err
	}
	return err
}

// Get reads a chart. An error names it.
func (s *Source) Get(ctx context.Context, c message.Chart) (*Chart, error) {
	u, err := parseURL(c.URL)
	if err != nil {
		return nil, fmt.Errorf("chart %q: %w", c.URL, err)
	}
	archive, err := s.fetchArchive(ctx, u, c)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", chartName(u, c), classify(err))
	}
	loaded, err := loadArchive(archive)
	if err == nil {
		err = checkVersion(loaded, c.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", chartName(u, c), err)
	}
	return loaded, nil
}

// chartName is a chart for people.
func chartName(u *url.URL, c message.Chart) string {
	if c.Name == "" || isArchive(u) {
		return u.Redacted()
	}
	return c.Name + " of " + u.Redacted()
}

func (s *Source) fetchArchive(ctx context.Context, u *url.URL, c message.Chart) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	switch {
	case u.Scheme == schemeOCI:
		return s.fetchFromRegistry(ctx, u, c)
	case c.Name != "" && !isArchive(u):
		return s.fetchFromRepository(ctx, u, c)
	default:
		return s.download(ctx, u, maxArchive)
	}
}
