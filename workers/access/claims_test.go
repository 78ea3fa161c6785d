// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/base64"
	"strings"
	"testing"
)

// unsignedJWT is a JWT with that payload, and a signature that is none.
func unsignedJWT(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256","kid":"k"}`)) + "." + encode([]byte(payload)) + "." + encode([]byte("signature"))
}

func TestHasAudienceReadsClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, token string
		want          bool
	}{
		"one audience":      {"RFC 7519 has a text for one", unsignedJWT(`{"aud":"spokelet-workers"}`), true},
		"one of a list":     {"Kubernetes has a list", unsignedJWT(`{"iss":"https://kubernetes","aud":["other","spokelet-workers"],"sub":"system:serviceaccount:team-a:ci"}`), true},
		"another audience":  {"a token for the API server", unsignedJWT(`{"aud":["https://kubernetes.default.svc"]}`), false},
		"a part of it":      {"audiences are compared whole", unsignedJWT(`{"aud":"spokelet-workers-2"}`), false},
		"no audience":       {"a token of a Secret", unsignedJWT(`{"sub":"system:serviceaccount:team-a:ci"}`), false},
		"a number":          {"no audience is one", unsignedJWT(`{"aud":1}`), false},
		"no JSON":           {"no JWT", unsignedJWT(`aud`), false},
		"no base64":         {"no JWT", "a.b!.c", false},
		"two parts":         {"no JWT", strings.Join(strings.Split(unsignedJWT(`{"aud":"spokelet-workers"}`), ".")[:2], "."), false},
		"four parts":        {"no JWT", unsignedJWT(`{"aud":"spokelet-workers"}`) + ".x", false},
		"one of Cloudflare": {"what wrangler login gets", "v1.0-8f6c2f0d-abcdef", false},
		"too long":          {"API servers bound headers", unsignedJWT(`{"aud":"spokelet-workers"}` + strings.Repeat(" ", maxTokenBytes)), false},
		"nothing":           {"no token", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HasAudience(tc.token); got != tc.want {
				t.Errorf("got %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func FuzzHasAudience(f *testing.F) {
	f.Add(unsignedJWT(`{"aud":"spokelet-workers"}`))
	f.Add(unsignedJWT(`{"aud":["spokelet-workers"]}`))
	f.Add("a..c")
	f.Fuzz(func(t *testing.T, token string) {
		if HasAudience(token) && strings.Count(token, ".") != 2 {
			t.Errorf("%q is for the audience", token)
		}
	})
}
