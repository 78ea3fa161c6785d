// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"errors"
	"net/url"
	"testing"
)

func TestAllowedCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		allowed []string
		url     string
		want    error
	}{
		"the entry":               {reason: "it is itself", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/a"},
		"below the entry":         {reason: "it is a folder", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/a/b-1.0.0.tgz"},
		"an entry with a slash":   {reason: "it is the same folder", allowed: []string{"https://c.example.com/a/"}, url: "https://c.example.com/a/b"},
		"a whole host":            {reason: "all that it serves", allowed: []string{"https://c.example.com"}, url: "https://c.example.com/a?b=c"},
		"the default port":        {reason: "it is the same server", allowed: []string{"https://c.example.com"}, url: "https://C.example.com:443/a"},
		"one of two":              {reason: "any entry will do", allowed: []string{"https://b.example.com", "https://c.example.com"}, url: "https://c.example.com/a"},
		"nothing":                 {reason: "the default", url: "https://c.example.com/a", want: ErrNotAllowed},
		"a neighbour":             {reason: "a name that begins like the folder is no part of it", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/ab", want: ErrNotAllowed},
		"above the entry":         {reason: "it is not below", allowed: []string{"https://c.example.com/a/b"}, url: "https://c.example.com/a", want: ErrNotAllowed},
		"another port":            {reason: "it is another server", allowed: []string{"https://c.example.com"}, url: "https://c.example.com:8443/a", want: ErrNotAllowed},
		"without TLS":             {reason: "anybody may answer", allowed: []string{"https://c.example.com"}, url: "http://c.example.com/a", want: ErrNotAllowed},
		"a longer host":           {reason: "it is somebody else's", allowed: []string{"https://c.example.com"}, url: "https://c.example.com.evil.example/a", want: ErrNotAllowed},
		"the host as a user":      {reason: "it is somebody else's", allowed: []string{"https://c.example.com"}, url: "https://c.example.com@evil.example/a", want: ErrURL},
		"a way up":                {reason: "a server may take it", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/a/../b", want: ErrURL},
		"an escaped way up":       {reason: "a server may take it", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/a/%2e%2e/b", want: ErrURL},
		"an escaped slash":        {reason: "a server may take it", allowed: []string{"https://c.example.com/a"}, url: "https://c.example.com/a%2f..%2fb", want: ErrURL},
		"a backslash":             {reason: "a server may take it", allowed: []string{"https://c.example.com/a"}, url: `https://c.example.com/a\..\b`, want: ErrURL},
		"a file":                  {reason: "there is none here", allowed: []string{"https://c.example.com"}, url: "file:///etc/passwd", want: ErrURL},
		"no host":                 {reason: "it is nobody's", allowed: []string{"https://c.example.com"}, url: "https:///a", want: ErrURL},
		"a registry's manifest":   {reason: "this is how an artefact is read", allowed: []string{"oci://r.example.com/charts"}, url: "https://r.example.com/v2/charts/a/manifests/1.0.0"},
		"a registry itself":       {reason: "a client asks who may read", allowed: []string{"oci://r.example.com/charts"}, url: "https://r.example.com/v2/"},
		"a whole registry":        {reason: "all that it has", allowed: []string{"oci://r.example.com"}, url: "https://r.example.com/v2/a/blobs/sha256:0"},
		"another repository":      {reason: "it is not below", allowed: []string{"oci://r.example.com/charts"}, url: "https://r.example.com/v2/chartsets/a/manifests/1", want: ErrNotAllowed},
		"no registry's API":       {reason: "only artefacts are", allowed: []string{"oci://r.example.com/charts"}, url: "https://r.example.com/charts/a.tgz", want: ErrNotAllowed},
		"a registry without TLS":  {reason: "anybody may answer", allowed: []string{"oci://r.example.com/charts"}, url: "http://r.example.com/v2/charts/a/manifests/1", want: ErrNotAllowed},
		"a server for a registry": {reason: "an entry is of one kind", allowed: []string{"https://r.example.com/charts"}, url: "https://r.example.com/v2/charts/a/manifests/1", want: ErrNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			allowed, err := ParseAllowed(tc.allowed)
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(tc.url)
			if err != nil {
				t.Fatal(err)
			}
			if err := allowed.Check(u); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func FuzzAllowedCheck(f *testing.F) {
	for _, raw := range []string{"https://c.example.com/a/b", "https://c.example.com/a/../b", "https://c.example.com/a%2f..", "oci://c.example.com/a", "https://c.example.com:443/a?b#c"} {
		f.Add(raw)
	}
	allowed, err := ParseAllowed([]string{"https://c.example.com/a"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || allowed.Check(u) != nil {
			return
		}
		resolved := u.JoinPath().EscapedPath() // what a server may make of it
		if u.Hostname() == "" || u.Scheme != "https" || !isBelow("/a", resolved) {
			t.Errorf("%q is allowed, as %s", raw, resolved)
		}
	})
}
