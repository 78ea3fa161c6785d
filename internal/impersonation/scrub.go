// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package impersonation

import (
	"net/http"
	"strings"
	"unicode"
)

const (
	impersonationPrefix = "impersonate-"
	assertionPrefix     = "spokelet-principal"
	podPrefix           = "spokelet-pod"
)

// Scrub removes from h every header by which a caller could say who it is: the
// whole prefix Impersonate- (today's headers and any future one) and every
// Spokelet-Principal and Spokelet-Pod header. Names are compared the way the most careless
// reader would: case, and what separates the words, do not matter. Such names
// are taken out of the lists in Connection and Trailer too, where they would
// have a proxy drop or add them.
func Scrub(h http.Header) {
	for k, values := range h {
		name := normalize(k)
		switch {
		case isClaim(name):
			delete(h, k)
		case name == "connection" || name == "trailer":
			removeClaims(h, k, values)
		}
	}
}

func isClaim(folded string) bool {
	return strings.HasPrefix(folded, impersonationPrefix) || isAssertion(folded)
}

func isAssertion(folded string) bool {
	return strings.HasPrefix(folded, assertionPrefix) || strings.HasPrefix(folded, podPrefix)
}

func removeClaims(h http.Header, key string, values []string) {
	if !hasClaim(values) {
		return
	}
	kept := make([]string, 0, len(values))
	for _, v := range values {
		var tokens []string
		for token := range strings.SplitSeq(v, ",") {
			if !isClaim(normalize(token)) {
				tokens = append(tokens, token)
			}
		}
		if len(tokens) > 0 {
			kept = append(kept, strings.Join(tokens, ","))
		}
	}
	if len(kept) == 0 {
		delete(h, key)
		return
	}
	h[key] = kept
}

func hasClaim(values []string) bool {
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			if isClaim(normalize(token)) {
				return true
			}
		}
	}
	return false
}

// normalize reduces a header name to lower-case words joined by single dashes, so
// that Impersonate_User, impersonate.user and " IMPERSONATE--USER" are one.
func normalize(name string) string {
	if cannotBeClaim(name) {
		return ""
	}
	var b strings.Builder
	b.Grow(len(name))
	dash := false
	for _, r := range name {
		// Both, because readers that compare with simple case folding take the
		// Kelvin sign for a k and the long s for an s.
		r = unicode.ToLower(unicode.ToUpper(r))
		if ('a' <= r && r <= 'z') || ('0' <= r && r <= '9') {
			b.WriteRune(r)
			dash = false
			continue
		}
		if b.Len() > 0 && !dash {
			b.WriteByte('-')
			dash = true
		}
	}
	return b.String()
}

// cannotBeClaim spares most names the copy: it begins with a letter with which
// neither a claim nor one of the two lists begins.
func cannotBeClaim(name string) bool {
	if name == "" {
		return true
	}
	first := name[0] | 0x20
	return 'a' <= first && first <= 'z' && !strings.ContainsRune("isct", rune(first))
}
