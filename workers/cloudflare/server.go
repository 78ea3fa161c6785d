// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"crypto/tls"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"

	"github.com/spokelet/spokelet/internal/connlimit"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10

	// strangers are the connections without a request that had a valid token, callers those
	// between two that had. Those with one are as many as such requests and tails.
	strangers, callers = 256, 256
	// firstReviewTimeout is what a connection has until its first request was reviewed.
	firstReviewTimeout = headerTimeout + 10*time.Second
)

// Listen bounds the connections of a server that NewServer has made.
func Listen(l net.Listener) net.Listener {
	return connlimit.New(l, connlimit.Limits{Unauthorized: strangers, Idle: callers, UnauthorizedTimeout: firstReviewTimeout})
}

// NewServer returns the server of an API, which is served by TLS alone. It has a limit for
// each wait and size that is there before a request is known; the API sets those of its
// requests.
func NewServer(handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), logger logr.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       connlimit.Context,
		ConnState:         connlimit.HoldHijacked, // the tails
		ErrorLog:          log.New(errorLog{logger}, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate,
			NextProtos: []string{"http/1.1"}, // WebSockets
		},
		// Without it a server of TLS adds HTTP/2.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
}

// errorLog logs errors of the server at the debug level, because untrusted peers cause them.
type errorLog struct{ logr.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.V(1).Info("server", "message", string(line))
	return len(line), nil
}
