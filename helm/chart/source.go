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
	// readTimeout bounds the time to read a chart or values, with all requests.
	readTimeout = time.Minute
	// answerTimeout bounds the wait for the header of an answer.
	answerTimeout = 20 * time.Second
)

var (
	// ErrTooLarge is returned for an answer that exceeds its limit.
	ErrTooLarge = errors.New("too large")
	// ErrTooLong is returned for an answer that takes too long.
	ErrTooLong = errors.New("the server takes too long")
	// ErrUnavailable is returned for a server that cannot be reached, or fails. A request may
	// be retried.
	ErrUnavailable = errors.New("the server is unavailable")
)

// Source reads charts and values.
type Source struct{ client *http.Client }

// NewSource returns a source of allowed URLs. Insecure disables the verification of
// certificates.
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

// allowListTransport checks each request against the list, those of redirects included.
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
	// Nothing that is read is larger; a library reads the answers of a registry.
	response.Body = http.MaxBytesReader(nil, response.Body, max(maxArchive, maxIndex))
	return response, nil
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

// download returns the content of a URL.
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
	raw, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("%w: the limit is %d MiB", ErrTooLarge, limit>>20)
	case ctx.Err() != nil:
		// A server may end its answer regularly because the request is cancelled.
		return nil, context.Cause(ctx)
	}
	return raw, err
}

// isTemporary reports whether a server may answer otherwise later.
func isTemporary(code int) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
}

// classify wraps the kind of an error that the network or a library has reported.
func classify(err error) error {
	var (
		connection *net.OpError
		name       *net.DNSError
		answer     *errcode.ErrorResponse
		tooLarge   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &tooLarge):
		return fmt.Errorf("%w: the limit is %d MiB", ErrTooLarge, tooLarge.Limit>>20)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrTooLong, err)
	case errors.As(err, &name) && name.IsNotFound: // nor will it be found later
		return err
	case errors.As(err, &connection) && connection.Op != "remote error", // an alert of TLS
		errors.As(err, &answer) && isTemporary(answer.StatusCode):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	default:
		return err
	}
}

// unwrapURL removes the requested URL from an error, because the caller names it. That of a
// redirect stays.
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

// chartName describes a chart.
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
