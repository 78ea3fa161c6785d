// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package podrefs

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// injected is a volume as admission puts it in, and where.
const injected = `{"name":"kube-api-access-a","projected":{"sources":[{"serviceAccountToken":{"path":"token","expirationSeconds":3607}},
	{"configMap":{"name":"kube-root-ca.crt"}},{"configMap":{"name":"openshift-service-ca.crt"}}]}}`

const injectedAt = `"volumeMounts":[{"name":"kube-api-access-a","mountPath":"` + TokenPath + `"}]`

func TestTokens(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []Token
	}{
		"none": {reason: "most volumes hold none", spec: `{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","projected":{"sources":[{"secret":{"name":"s"}}]}}]}`},
		"one of admission and one of the user": {
			reason: "a kubelet asks for both",
			spec:   `{"volumes":[` + injected + `,{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t","audience":"vault"}}]}}]}`,
			want:   []Token{{Audience: "vault", ExpirationSeconds: 3600}, {ExpirationSeconds: 3607}},
		},
		"the same twice": {
			reason: "one serves both",
			spec: `{"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"a","expirationSeconds":600}},
				{"serviceAccountToken":{"path":"b","expirationSeconds":600}}]}}]}`,
			want: []Token{{ExpirationSeconds: 600}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Tokens(&read(t, tc.spec).Spec)
			names := map[string]bool{}
			for i := range got {
				if names[got[i].Name] || !strings.HasPrefix(got[i].Name, "token-") {
					t.Errorf("name %q is another's, or none", got[i].Name)
				}
				names[got[i].Name], got[i].Name = true, ""
			}
			less := gocmp.Transformer("set", func(in []Token) map[Token]bool {
				out := map[Token]bool{}
				for _, token := range in {
					out[token] = true
				}
				return out
			})
			if diff := gocmp.Diff(tc.want, got, less); diff != "" {
				t.Errorf("%s\nTokens() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIsTokenName(t *testing.T) {
	cases := map[string]struct {
		reason string
		name   string
		want   bool
	}{
		"of a token":    {reason: "it is what TokenOf says", name: TokenOf(&corev1.ServiceAccountTokenProjection{}).Name, want: true},
		"of another":    {reason: "it has no prefix", name: "namespace"},
		"too short":     {reason: "somebody made it up", name: "token-0123"},
		"too long":      {reason: "somebody made it up", name: "token-0123456789abcdef01"},
		"not hex":       {reason: "somebody made it up", name: "token-mine-mine-mine0"},
		"in capitals":   {reason: "it is what TokenOf does not say", name: "token-0123456789ABCDEF"},
		"of no hash":    {reason: "somebody made it up", name: "token-"},
		"of a bare sum": {reason: "it has no prefix", name: "0123456789abcdef"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := IsTokenName(tc.name); got != tc.want {
				t.Errorf("%s: IsTokenName(%q) is %t", tc.reason, tc.name, got)
			}
		})
	}
}

func TestWithTokens(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []Ref
	}{
		"what admission put in": {
			reason: "the authority is needed for the token to be of use, others of that cluster are not",
			spec:   `{"volumes":[` + injected + `],"containers":[{"name":"a",` + injectedAt + `}]}`,
			want:   []Ref{configMap(RootCA, false)},
		},
		"in an environment": {
			reason: "it is a reference as any other",
			spec: `{"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}],
				"containers":[{"name":"a","env":[{"name":"CA","valueFrom":{"configMapKeyRef":{"name":"kube-root-ca.crt","key":"ca.crt","optional":true}}}]}]}`,
			want: []Ref{configMap(RootCA, true)},
		},
		"not at all": {
			reason: "a token for somebody else needs none",
			spec:   `{"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}},{"secret":{"name":"s"}}]}}]}`,
			want:   []Ref{secret("s", false)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tc.want, WithTokens(read(t, tc.spec))); diff != "" {
				t.Errorf("%s\nWithTokens() (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
