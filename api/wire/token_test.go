// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheKeyOfTokensNamesOnePod(t *testing.T) {
	cases := map[string]struct {
		reason string
		key    string
		want   PodTokenKey
		err    error
	}{
		"a pod":           {reason: "as the hub sends it", key: "ns/p.q/0b0e7c6a-1", want: PodTokenKey{PodKey: PodKey{Namespace: "ns", Name: "p.q"}, UID: "0b0e7c6a-1"}},
		"no uid":          {reason: "the next pod of that name would have its tokens", key: "ns/p", err: ErrInvalidPod},
		"an empty uid":    {reason: "the next pod of that name would have its tokens", key: "ns/p/", err: ErrInvalidPod},
		"a uid in dots":   {reason: "it becomes part of a name", key: "ns/p/..", err: ErrInvalidPod},
		"a long uid":      {reason: "it becomes part of a name", key: "ns/p/" + strings.Repeat("u", 64), err: ErrInvalidPod},
		"another's space": {reason: "names become parts of paths", key: "../p/u", err: ErrInvalidPod},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePodTokenKey(tc.key)
			if !errors.Is(err, tc.err) {
				t.Fatalf("reason: %s: error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("reason: %s\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTokensAreBoundedAndNeverQuoted(t *testing.T) {
	const secret = "eyJhunter2"
	many := PodToken{Tokens: map[string]string{}}
	for i := range PodTokensMax + 1 {
		many.Tokens[fmt.Sprintf("token-%d", i)] = secret
	}
	cases := map[string]struct {
		reason string
		body   string
		err    error
	}{
		"one":              {reason: "as the hub sends it", body: `{"tokens":{"token-1":"` + secret + `"}}`},
		"none":             {reason: "tokens that are not there are not sent", body: `{"tokens":{}}`, err: ErrInvalidPod},
		"an empty one":     {reason: "a container would show it to somebody", body: `{"tokens":{"token-1":""}}`, err: ErrInvalidPod},
		"a name of a path": {reason: "names become keys of a Secret", body: `{"tokens":{"../` + secret + `":"t"}}`, err: ErrInvalidPod},
		"no text":          {reason: "it is no token", body: `{"tokens":{"token-1":["` + secret + `"]}}`, err: ErrInvalidPod},
		"cut off":          {reason: "it is no token", body: `{"tokens":{"token-1":"` + secret, err: ErrInvalidPod},
		"too many":         {reason: "a Secret has to take them", body: string(encoded(t, many)), err: ErrInvalidPod},
		"too much":         {reason: "a Secret has to take them", body: `{"tokens":{"token-1":"` + strings.Repeat("t", PodTokensMaxBytes) + `"}}`, err: ErrInvalidPod},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := DecodePodToken([]byte(tc.body))
			if !errors.Is(err, tc.err) {
				t.Fatalf("reason: %s: error %v, want %v", tc.reason, err, tc.err)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || len(err.Error()) > 200) {
				t.Errorf("reason: %s: error %v quotes what came", tc.reason, err)
			}
		})
	}
	if _, err := many.Encode(); !errors.Is(err, ErrInvalidPod) {
		t.Errorf("Encode() of too many: %v", err)
	}
}

func FuzzPodToken(f *testing.F) {
	f.Add("ns/p/u", []byte(`{"tokens":{"token-1":"t"}}`))
	f.Add("ns/p/u/v", []byte(`{"tokens":{"token-1":1}}`))
	f.Fuzz(func(t *testing.T, key string, body []byte) {
		if k, err := ParsePodTokenKey(key); err == nil && k.String() != key {
			t.Errorf("key %q became %q", key, k.String())
		}
		got, err := DecodePodToken(body)
		if err != nil {
			if !errors.Is(err, ErrInvalidPod) {
				t.Errorf("error %v is not classified", err)
			}
			return
		}
		again, err := got.Encode()
		if err != nil && len(body) <= PodTokensMaxBytes/8 {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if err == nil {
			if second, err := DecodePodToken(again); err != nil || !cmp.Equal(got, second) {
				t.Errorf("what was written reads otherwise: %v", err)
			}
		}
	})
}
