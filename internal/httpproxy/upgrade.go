// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrUpgrade is wrapped by the errors of Upgrade. The request must be refused
// with 400: a reader behind this one might take it for an upgrade.
var ErrUpgrade = errors.New("request is not a well-formed upgrade")

const (
	// switchTimeout is how long a cluster may take to answer an upgrade.
	switchTimeout = 30 * time.Second
	// maxSwitchHeader bounds the header of that answer, in bytes, together with
	// those of all 1xx answers before it, which are dropped.
	maxSwitchHeader = 256 << 10

	socketProtocolHeader = "Sec-Websocket-Protocol"
	// bearerProtocol begins the element of Sec-WebSocket-Protocol in which a
	// browser, which can set no other header, sends a token
	// (k8s.io/apiserver/pkg/authentication/request/websocket).
	bearerProtocol = "base64url.bearer.authorization.k8s.io." //nolint:gosec // the name of a protocol, and no token
)

// hopByHop are the headers of one connection, in canonical form.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Upgrade returns the protocol that h asks to switch to, empty when h asks for
// none. Upgrade and Connection must agree (RFC 9110, section 7.8): half an
// upgrade is an error, and so is a choice of several protocols.
func Upgrade(h http.Header) (protocol string, err error) {
	protocols, connection := h["Upgrade"], connectionUpgrades(h)
	switch {
	case len(protocols) == 0 && !connection:
		return "", nil
	case len(protocols) == 0:
		return "", fmt.Errorf("%w: Connection names Upgrade, which is absent", ErrUpgrade)
	case !connection:
		return "", fmt.Errorf("%w: Connection does not name Upgrade", ErrUpgrade)
	case len(protocols) > 1 || !isProtocol(protocols[0]):
		return "", fmt.Errorf("%w: it names no single protocol", ErrUpgrade)
	default:
		return protocols[0], nil
	}
}

func connectionUpgrades(h http.Header) bool {
	for _, v := range h["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(token, " \t"), "upgrade") {
				return true
			}
		}
	}
	return false
}

// isProtocol accepts a protocol-name with an optional version, as SPDY/3.1.
func isProtocol(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("/.-_+", rune(c)) {
			return false
		}
	}
	return true
}

// UpgradeOf is Upgrade for a request, and refuses what no upgrade can have: a
// body, which could hide a second request, or another version than HTTP/1.1.
func UpgradeOf(r *http.Request) (protocol string, err error) {
	protocol, err = Upgrade(r.Header)
	switch {
	case err != nil || protocol == "":
		return "", err
	case r.ProtoMajor != 1 || r.ProtoMinor != 1:
		return "", fmt.Errorf("%w: it is not HTTP/1.1", ErrUpgrade)
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return "", fmt.Errorf("%w: it has a body", ErrUpgrade)
	default:
		return protocol, nil
	}
}

// KeepUpgrade removes from h what belongs to one connection (RFC 9110, section
// 7.6.1), whatever Connection lists included, and asks for protocol.
func KeepUpgrade(h http.Header, protocol string) {
	for _, v := range h["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			h.Del(strings.Trim(token, " \t"))
		}
	}
	for _, k := range hopByHop {
		delete(h, k)
	}
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{protocol}
}

// SocketProtocols returns the protocols that a WebSocket offers in h, but for bearer
// tokens.
func SocketProtocols(h http.Header) []string {
	var protocols []string
	for _, line := range h[socketProtocolHeader] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			if len(protocol) < len(bearerProtocol) || !strings.EqualFold(protocol[:len(bearerProtocol)], bearerProtocol) {
				protocols = append(protocols, protocol)
			}
		}
	}
	return protocols
}

// SetSocketProtocols has to offer the SocketProtocols of from and no others; the two
// may be the same header. The hub takes out the token by which it authenticated the
// caller; where another credential did, a token would reach the cluster, which could
// use it at the hub.
func SetSocketProtocols(to, from http.Header) {
	protocols := SocketProtocols(from)
	delete(to, socketProtocolHeader)
	if len(protocols) > 0 {
		to[socketProtocolHeader] = []string{strings.Join(protocols, ", ")}
	}
}

// SwitchTransport makes a transport for one upgrade to a cluster, over the connection
// that dial returns. What the cluster answers is bounded in time and size.
func SwitchTransport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		ResponseHeaderTimeout:  switchTimeout,
		MaxResponseHeaderBytes: maxSwitchHeader,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}
}
