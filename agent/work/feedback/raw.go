// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"encoding/json"
	"fmt"
)

// raw encodes a value as compact JSON with sorted keys. A value that cannot fit is
// refused before it is encoded: it may be as large as the object.
func raw(value any, limit int) (string, error) {
	if least(value, limit) > limit {
		return "", fmt.Errorf("%w: it exceeds the limit of %d bytes", errTooLong, limit)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode raw JSON: %w", err)
	}
	if len(text) > limit {
		return "", fmt.Errorf("%w: it exceeds the limit of %d bytes", errTooLong, limit)
	}
	return string(text), nil
}

// least is a lower bound of a value's length as JSON. It stops counting, and
// descending, once limit is exceeded.
func least(value any, limit int) int {
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
			n += least(child, limit-n)
		}
	case map[string]any:
		n = 2
		for key, child := range v {
			if n > limit {
				break
			}
			n += len(key) + 3 + least(child, limit-n)
		}
	}
	return n
}

// encoded is about the length of a text as a JSON string; it counts no further than
// to exceed limit.
func encoded(text *string, limit int) int {
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
