// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpclient holds what the clients of the object store and of the registry share:
// connections with a limit for each wait, and errors whose text is the same for the same cause,
// as they end in conditions.
package httpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = time.Minute
)

// ValidateCA reports whether a bundle of certificate authorities, which may be empty, can be
// read.
func ValidateCA(ca []byte) error {
	if len(ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return errors.New("the bundle of authorities holds no certificate")
	}
	return nil
}

// NewTransport returns connections that trust the authorities of the system and those of ca. A
// server may take responseTimeout to begin an answer.
func NewTransport(ca []byte, responseTimeout time.Duration, maxConnections int) (*http.Transport, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("authorities of the system: %w", err)
	}
	pool.AppendCertsFromPEM(ca)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: responseTimeout,
		IdleConnTimeout:       idleTimeout,
		MaxConnsPerHost:       maxConnections,
		MaxIdleConnsPerHost:   maxConnections,
	}, nil
}

// StableError removes from an error of the network what differs each time: the URL of the
// request, and the port that it came from.
func StableError(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.Canceled) {
		return errors.New("it took too long to answer")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s %v: %w", op.Op, op.Addr, op.Err)
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		// The client of the object store writes the URL into the text of some.
		if text := request.Err.Error(); strings.Contains(text, request.URL) {
			return errors.New(strings.ReplaceAll(text, " "+request.URL, ""))
		}
		return request.Err
	}
	return err
}
