// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxPath bounds a JSON pointer, a JSONPath and a jq expression, in bytes.
const maxPath = 4096

var (
	errPathLength = fmt.Errorf("path is longer than %d bytes", maxPath)
	errNotPointer = errors.New("pointer must begin with '/'")
	errWhole      = errors.New("pointer names the whole document")
	errEscape     = errors.New("'~' must be followed by '0' or '1'")
)

// pointer is a JSON pointer (RFC 6901): its tokens, unescaped.
type pointer []string

func parsePointer(text string) (pointer, error) {
	switch {
	case len(text) > maxPath:
		return nil, errPathLength
	case text == "":
		return nil, errWhole
	case text[0] != '/':
		return nil, errNotPointer
	}
	tokens := strings.Split(text[1:], "/")
	for i, token := range tokens {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(token), "~") {
			return nil, errEscape
		}
		tokens[i] = unescape(token)
	}
	return tokens, nil
}

// unescape replaces from left to right: ~01 is ~1, not /.
func unescape(token string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
}

func (p pointer) remove(_ context.Context, doc map[string]any) (map[string]any, error) {
	last := p[len(p)-1]
	var at any = doc
	for _, token := range p[:len(p)-1] {
		at = step(at, token)
	}
	switch v := at.(type) {
	case map[string]any:
		delete(v, last)
	case []any:
		if i, ok := index(last, len(v)); ok {
			v[i] = gone{}
			sweep(doc)
		}
	}
	return doc, nil
}

// step returns the child that a token names; nil when there is none.
func step(v any, token string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[token]
	case []any:
		if i, ok := index(token, len(v)); ok {
			return v[i]
		}
	}
	return nil
}

// index reads a list index: digits without leading zeros. "-", the element after
// the last, never exists.
func index(token string, length int) (int, bool) {
	if len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	i, err := strconv.ParseUint(token, 10, 31)
	return int(i), err == nil && i < uint64(length) //nolint:gosec // 31 bits, and a length is not negative
}
