// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrUpgrade is wrapped by the errors of UpgradeProtocol. The request must be refused
// with 400: a reader behind this one might take it for an upgrade.
var ErrUpgrade = errors.New("request is not a well-formed upgrade")

const (
	webSocketProtocolHeader = "Sec-Websocket-Protocol"
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

// HeaderProtocol returns the protocol that h asks to switch to, empty when h asks for
// none. Upgrade and Connection must agree (RFC 9110, section 7.8): half an
// upgrade is an error, and so is a choice of several protocols.
func HeaderProtocol(h http.Header) (protocol string, err error) {
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

// UpgradeProtocol returns the protocol that a request asks to switch to, empty when it
// asks for none. It refuses what no upgrade can have: a body, which could hide a second
// request, or another version than HTTP/1.1.
func UpgradeProtocol(r *http.Request) (protocol string, err error) {
	protocol, err = HeaderProtocol(r.Header)
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

// SetUpgrade removes from h what belongs to one connection (RFC 9110, section
// 7.6.1), whatever Connection lists included, and asks for protocol.
func SetUpgrade(h http.Header, protocol string) {
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

// WebSocketProtocols returns the protocols that a WebSocket offers in h, but for bearer
// tokens.
func WebSocketProtocols(h http.Header) []string {
	var protocols []string
	for _, line := range h[webSocketProtocolHeader] {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.TrimSpace(protocol)
			if len(protocol) < len(bearerProtocol) || !strings.EqualFold(protocol[:len(bearerProtocol)], bearerProtocol) {
				protocols = append(protocols, protocol)
			}
		}
	}
	return protocols
}

// SetWebSocketProtocols makes to offer the WebSocketProtocols of from and no others; the two
// may be the same header. The hub takes out the token by which it authenticated the
// caller; where another credential did, a token would reach the cluster, which could
// use it at the hub.
func SetWebSocketProtocols(to, from http.Header) {
	protocols := WebSocketProtocols(from)
	delete(to, webSocketProtocolHeader)
	if len(protocols) > 0 {
		to[webSocketProtocolHeader] = []string{strings.Join(protocols, ", ")}
	}
}
