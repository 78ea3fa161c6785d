// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// HasAudience reports whether a token is a JWT whose claim aud names the [Audience] (RFC 7519).
// Nothing is verified. The hub would refuse any other token, so it need not be asked.
func HasAudience(token string) bool {
	if len(token) > maxTokenBytes {
		return false
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Audience audiences `json:"aud"`
	}
	return json.Unmarshal(payload, &claims) == nil && slices.Contains(claims.Audience, Audience)
}

// audiences are one text, or a list.
type audiences []string

func (a *audiences) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, (*[]string)(a))
	}
	*a = make([]string, 1)
	return json.Unmarshal(raw, &(*a)[0])
}
