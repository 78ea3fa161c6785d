// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package door

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ErrUpgrade is wrapped by the errors of Upgrade. The request must be refused
// with 400: a reader behind this one might take it for an upgrade.
var ErrUpgrade = errors.New("request is not a well-formed upgrade")

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
