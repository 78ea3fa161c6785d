// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse reads a request line as the server does.
func parse(t testing.TB, line string) (*http.Request, error) {
	t.Helper()
	return http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: kube\r\n\r\n")))
}

func TestPath(t *testing.T) {
	cases := map[string]struct {
		reason string
		line   string
		want   string // empty: refused
	}{
		"root":                {reason: "discovery begins here", line: "GET /", want: "/"},
		"resource":            {reason: "the usual case", line: "GET /api/v1/namespaces/a/pods/b?watch=1", want: "/api/v1/namespaces/a/pods/b"},
		"colon":               {reason: "RBAC names hold colons", line: "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", want: "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"},
		"encoded colon":       {reason: "some clients encode more than they need", line: "GET /x/system%3Anode", want: "/x/system:node"},
		"encoded space":       {reason: "RBAC names may hold spaces", line: "GET /x/a%20b", want: "/x/a b"},
		"encoded UTF-8":       {reason: "RBAC names may hold letters of any script", line: "GET /x/%C3%A4", want: "/x/ä"},
		"trailing slash":      {reason: "services behind the API server tell them apart", line: "GET /a/", want: "/a/"},
		"dots in a segment":   {reason: "file names hold dots", line: "GET /a/..b/c...", want: "/a/..b/c..."},
		"tricks in the query": {reason: "the query is not a path", line: "GET /a?x=%2f..//;", want: "/a"},
		"double slash":        {reason: "an empty segment is skipped by some", line: "GET /a//b"},
		"leading slashes":     {reason: "it reads as a host", line: "GET //evil/api"},
		"trailing slashes":    {reason: "an empty segment is skipped by some", line: "GET /a//"},
		"dot":                 {reason: "some resolve it", line: "GET /a/./b"},
		"dot dot":             {reason: "some resolve it", line: "GET /a/../b"},
		"final dot dot":       {reason: "some resolve it", line: "GET /a/.."},
		"encoded dots":        {reason: "some decode, then resolve", line: "GET /a/%2e%2E/b"},
		"half encoded dots":   {reason: "some decode, then resolve", line: "GET /a/.%2e/b"},
		"encoded slash":       {reason: "one segment or two", line: "GET /a%2fb"},
		"encoded slash upper": {reason: "one segment or two", line: "GET /a%2Fb"},
		"double encoding":     {reason: "some decode twice", line: "GET /a%252fb"},
		"encoded percent":     {reason: "some decode twice", line: "GET /a%25"},
		"semicolon":           {reason: "some cut parameters off", line: "GET /a;x=1/b"},
		"encoded semicolon":   {reason: "some cut parameters off", line: "GET /a%3bx"},
		"backslash":           {reason: "some take it for a slash", line: `GET /a\..\b`},
		"encoded backslash":   {reason: "some take it for a slash", line: "GET /a%5cb"},
		"NUL":                 {reason: "some end there", line: "GET /a%00b"},
		"newline":             {reason: "it would split a request", line: "GET /a%0d%0aX:y"},
		"broken UTF-8":        {reason: "readers differ on it", line: "GET /a%ff"},
		"overlong slash":      {reason: "lenient decoders take it for a slash", line: "GET /a%c0%afb"},
		"absolute URI":        {reason: "its host would go unchecked", line: "GET http://evil/api"},
		"absolute to kube":    {reason: "there is one form", line: "GET http://kube/api"},
		"asterisk":            {reason: "it is no path", line: "OPTIONS *"},
		"CONNECT":             {reason: "it opens a tunnel", line: "CONNECT evil:443"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r, err := parse(t, tc.line)
			if err != nil {
				if tc.want == "" {
					return // the server refuses it before us
				}
				t.Fatal(err)
			}
			got, err := Path(r)
			if (err != nil) != (tc.want == "") || got != tc.want {
				t.Errorf("%s: Path = %q, %v; want %q", tc.reason, got, err, tc.want)
			}
			if err != nil && !errors.Is(err, ErrPath) {
				t.Errorf("%s: error %v does not wrap ErrPath", tc.reason, err)
			}
		})
	}
}

func TestPathRefusesContradictingRequests(t *testing.T) {
	cases := map[string]*url.URL{
		"raw path of another path": {Path: "/api/v1/pods", RawPath: "/api/v1/secrets"},
		"broken raw path":          {Path: "/a", RawPath: "/%zz"},
		"opaque":                   {Opaque: "//evil/api", Path: "/a"},
		"user info":                {User: url.User("root"), Path: "/a"},
		"relative":                 {Path: "a/b"},
		"empty":                    {},
	}
	for name, u := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := Path(&http.Request{Method: http.MethodGet, URL: u}); err == nil {
				t.Errorf("Path = %q, want an error", got)
			}
		})
	}
}

// FuzzPath checks that what is accepted is read in one way: sent on and read
// again, by a server or by someone who cleans and decodes, it stays the same.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/", "/api/v1/pods", "/a%2fb", "/a%252fb", "//a", "/a/../b", "/a/%2e%2e/b", "/a;b", `/a\b`, "/%C3%A4", "/a/", "*", "http://x/y",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		r, err := parse(t, "GET "+target)
		if err != nil {
			return
		}
		got, err := Path(r)
		if err != nil {
			return
		}
		if cleaned := path.Clean(got); cleaned != strings.TrimSuffix(got, "/") && got != "/" {
			t.Errorf("%q: %q cleans to %q", target, got, cleaned)
		}
		if again, err := url.PathUnescape(got); err != nil || again != got {
			t.Errorf("%q: %q decodes once more to %q, %v", target, got, again, err)
		}
		forwarded := &url.URL{Scheme: "http", Host: "kube", Path: got}
		next, err := parse(t, "GET "+forwarded.RequestURI())
		if err != nil {
			t.Fatalf("%q: forwarded as %q: %v", target, forwarded.RequestURI(), err)
		}
		if second, err := Path(next); err != nil || second != got {
			t.Errorf("%q: authorized %q, forwarded %q, %v", target, got, second, err)
		}
	})
}

func TestUpgradeProtocol(t *testing.T) {
	cases := map[string]struct {
		reason string
		header http.Header
		change func(*http.Request)
		want   string
		err    error
	}{
		"none":               {reason: "the usual case", header: http.Header{}},
		"websocket":          {reason: "as clients send it", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, want: "websocket"},
		"SPDY":               {reason: "as clients send it", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, want: "SPDY/3.1"},
		"keep-alive too":     {reason: "browsers list both", header: http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"websocket"}}, want: "websocket"},
		"two lines":          {reason: "a list may be split", header: http.Header{"Connection": {"keep-alive", "Upgrade"}, "Upgrade": {"websocket"}}, want: "websocket"},
		"no Connection":      {reason: "some upgrade all the same", header: http.Header{"Upgrade": {"websocket"}}, err: ErrUpgrade},
		"no Upgrade":         {reason: "some upgrade all the same", header: http.Header{"Connection": {"Upgrade"}}, err: ErrUpgrade},
		"other Connection":   {reason: "a substring is no token", header: http.Header{"Connection": {"upgraded"}, "Upgrade": {"websocket"}}, err: ErrUpgrade},
		"two protocols":      {reason: "which one was authorized?", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket", "SPDY/3.1"}}, err: ErrUpgrade},
		"protocol list":      {reason: "which one was authorized?", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket, h2c"}}, err: ErrUpgrade},
		"empty protocol":     {reason: "it names nothing", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {""}}, err: ErrUpgrade},
		"protocol with a CR": {reason: "it would split a header", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"web\rsocket"}}, err: ErrUpgrade},
		"body": {
			reason: "it could hide a second request",
			header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
			change: func(r *http.Request) { r.ContentLength = 5 }, err: ErrUpgrade,
		},
		"chunked body": {
			reason: "it could hide a second request",
			header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
			change: func(r *http.Request) { r.ContentLength, r.TransferEncoding = -1, []string{"chunked"} }, err: ErrUpgrade,
		},
		"HTTP/2": {
			reason: "it has no upgrades",
			header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
			change: func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 2, 0 }, err: ErrUpgrade,
		},
		"HTTP/1.0": {
			reason: "it has no upgrades",
			header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
			change: func(r *http.Request) { r.ProtoMinor = 0 }, err: ErrUpgrade,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header = tc.header
			if tc.change != nil {
				tc.change(r)
			}
			got, err := UpgradeProtocol(r)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: UpgradeProtocol = %q, %v; want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
		})
	}
}

func TestSetWebSocketProtocolsDropsTokens(t *testing.T) {
	const token = "base64url.bearer.authorization.k8s.io.cm9vdA"
	cases := map[string]struct {
		reason string
		lines  []string
		want   []string
	}{
		"none":             {reason: "an upgrade need not offer any"},
		"no token":         {reason: "the order says what is preferred", lines: []string{"v5.channel.k8s.io, v4.channel.k8s.io"}, want: []string{"v5.channel.k8s.io, v4.channel.k8s.io"}},
		"a token":          {reason: "it is for the hub", lines: []string{token + ", v5.channel.k8s.io"}, want: []string{"v5.channel.k8s.io"}},
		"nothing else":     {reason: "an empty list would offer the empty protocol", lines: []string{token}},
		"two lines":        {reason: "a list may be split", lines: []string{"v5.channel.k8s.io", token, "v4.channel.k8s.io"}, want: []string{"v5.channel.k8s.io, v4.channel.k8s.io"}},
		"two tokens":       {reason: "the hub takes the first, and both may be good", lines: []string{token + "," + token + ",v5.channel.k8s.io"}, want: []string{"v5.channel.k8s.io"}},
		"spelt otherwise":  {reason: "a cluster may read it all the same", lines: []string{"BASE64URL.Bearer.authorization.k8s.io.cm9vdA, v5.channel.k8s.io"}, want: []string{"v5.channel.k8s.io"}},
		"an empty token":   {reason: "it is none that a cluster should see", lines: []string{"base64url.bearer.authorization.k8s.io., v5.channel.k8s.io"}, want: []string{"v5.channel.k8s.io"}},
		"not quite":        {reason: "it is another protocol", lines: []string{"base64url.bearer.authorization.k8s.io"}, want: []string{"base64url.bearer.authorization.k8s.io"}},
		"a tab, no blanks": {reason: "both are white space", lines: []string{"v5.channel.k8s.io,\t" + token}, want: []string{"v5.channel.k8s.io"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from := http.Header{}
			if tc.lines != nil {
				from["Sec-Websocket-Protocol"] = tc.lines
			}
			to := http.Header{"Sec-Websocket-Protocol": {"of an earlier request"}}
			SetWebSocketProtocols(to, from)
			SetWebSocketProtocols(from, from)
			for of, h := range map[string]http.Header{"another header": to, "the same header": from} {
				got, ok := h["Sec-Websocket-Protocol"]
				if !slices.Equal(got, tc.want) || ok != (tc.want != nil) {
					t.Errorf("%s: %s offers %q, want %q", tc.reason, of, got, tc.want)
				}
			}
		})
	}
}

func TestSetUpgradeDropsHopByHopHeaders(t *testing.T) {
	h := http.Header{
		"Connection": {"keep-alive, X-Private", "Upgrade"}, "Upgrade": {"websocket"}, "Keep-Alive": {"5"},
		"X-Private": {"1"}, "Te": {"trailers"}, "Proxy-Authorization": {"secret"}, "Sec-Websocket-Key": {"k"},
	}
	SetUpgrade(h, "websocket")
	want := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"k"}}
	if len(h) != len(want) || h.Get("Connection") != "Upgrade" || h.Get("Upgrade") != "websocket" || h.Get("Sec-Websocket-Key") != "k" {
		t.Errorf("header = %v, want %v", h, want)
	}
}
