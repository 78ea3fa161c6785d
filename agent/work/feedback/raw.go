// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"encoding/json"
	"errors"
	"fmt"
)

var errTooLong = errors.New("raw JSON is too long")

// encodeRaw encodes a value as compact JSON with sorted keys. A value that cannot fit is
// refused before it is encoded: it may be as large as the object.
func encodeRaw(value any, limit int) (string, error) {
	var text []byte
	if minSize(value, limit) <= limit {
		var err error
		if text, err = json.Marshal(value); err != nil {
			return "", fmt.Errorf("encode raw JSON: %w", err)
		}
	}
	if len(text) == 0 || len(text) > limit {
		return "", fmt.Errorf("%w: it exceeds the limit of %d bytes", errTooLong, limit)
	}
	return string(text), nil
}

// minSize returns a lower bound of a value's size as JSON. It stops counting, and
// descending, once limit is exceeded.
func minSize(value any, limit int) int {
	n := 1
	switch v := value.(type) {
	case string:
		n = len(v) + 2
	case []any:
		n = 2
		for _, child := range v {
			if n > limit {
				break
			}
			n += minSize(child, limit-n)
		}
	case map[string]any:
		n = 2
		for key, child := range v {
			if n > limit {
				break
			}
			n += len(key) + 3 + minSize(child, limit-n)
		}
	}
	return n
}

// stringSize returns about the size of a string as JSON. It stops counting once limit is
// exceeded.
func stringSize(text *string, limit int) int {
	if text == nil {
		return 0
	}
	n := len(*text)
	for i := 0; i < len(*text) && n <= limit; i++ {
		switch c := (*text)[i]; {
		case c == '"' || c == '\\':
			n++
		case c < ' ' || c == '<' || c == '>' || c == '&': // \u003c
			n += 5
		}
	}
	return n
}
