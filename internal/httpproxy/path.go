// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrPath is wrapped by the errors of Path. The request must be refused with
// 400: what one reader takes for one path another may take for a second.
var ErrPath = errors.New("request path is not canonical")

// Path returns the one path that a request is for, decoded. It has no empty,
// "." or ".." segment, no ";", "\" or "%", no control character, and none of
// these in an encoded form; harmless characters may have been encoded. A
// trailing slash stays. Forward it as url.URL{Path: path}, without RawPath.
//
// The target must be in origin form: CONNECT, "*" and absolute URIs (RFC 9112,
// section 3.2) are refused, because their host part would go unchecked.
func Path(r *http.Request) (string, error) {
	if r.Method == http.MethodConnect {
		return "", fmt.Errorf("%w: CONNECT", ErrPath)
	}
	// RequestURI is what the server read; a request built in process has none.
	if r.RequestURI != "" && !strings.HasPrefix(r.RequestURI, "/") {
		return "", fmt.Errorf("%w: target is not in origin form", ErrPath)
	}
	u := r.URL
	if u.Opaque != "" || u.User != nil {
		return "", fmt.Errorf("%w: target is not in origin form", ErrPath)
	}
	return canonical(u)
}

func canonical(u *url.URL) (string, error) {
	// A path that needs no escape is left without RawPath by net/url, and the
	// decoded form is all there is to check.
	if u.RawPath != "" {
		if err := checkEscapes(u.RawPath); err != nil {
			return "", err
		}
		if decoded, err := url.PathUnescape(u.RawPath); err != nil || decoded != u.Path {
			return "", fmt.Errorf("%w: encoded and decoded path differ", ErrPath)
		}
	}
	if err := checkSegments(u.Path); err != nil {
		return "", err
	}
	return u.Path, nil
}

// checkEscapes refuses escapes of characters that structure a path. A path
// that spells "/" or "." in two ways is read in two ways.
func checkEscapes(raw string) error {
	for i := 0; i+2 < len(raw); i++ {
		if raw[i] != '%' {
			continue
		}
		switch strings.ToLower(raw[i+1 : i+3]) {
		case "2f", "2e", "5c", "3b", "25":
			return fmt.Errorf("%w: %q is encoded", ErrPath, raw[i:i+3])
		}
	}
	return nil
}

func checkSegments(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("%w: it does not begin with a slash", ErrPath)
	case !utf8.ValidString(path):
		return fmt.Errorf("%w: it is not UTF-8", ErrPath)
	case strings.ContainsAny(path, `;\%`):
		return fmt.Errorf("%w: it holds one of ; \\ %%", ErrPath)
	case strings.ContainsFunc(path, unicode.IsControl):
		return fmt.Errorf("%w: it holds control characters", ErrPath)
	case path == "/":
		return nil
	}
	segments := strings.TrimSuffix(path[1:], "/")
	for segment := range strings.SplitSeq(segments, "/") {
		switch segment {
		case "", ".", "..":
			return fmt.Errorf("%w: it holds the segment %q", ErrPath, segment)
		}
	}
	return nil
}
