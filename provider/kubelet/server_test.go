// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestWhoMayAskWhat(t *testing.T) {
	v := &reviews{
		tokens: map[string]string{"good": "prometheus", "powerless": "nobody"},
		rights: map[right]bool{
			"apiserver get spoke1/proxy":    true,
			"apiserver get spoke1/metrics":  true,
			"prometheus get spoke1/metrics": true,
			"prober get spoke1/healthz":     true,
			"neighbour get spoke2/metrics":  true,
			"neighbour get spoke2/proxy":    true,
		},
	}
	f := newFixture(t, v, testDoor{"spoke1": says(http.StatusOK, "figures")})
	other := newAuthority(t)
	certificate := func(ca *authority, name string, change func(*x509.Certificate)) *tls.Certificate {
		c := ca.issue(t, name, change)
		return &c
	}
	cases := map[string]struct {
		reason      string
		path, token string
		certificate *tls.Certificate
		want        int
	}{
		"anonymous": {
			reason: "nothing is for everybody", path: "/metrics/resource", want: http.StatusUnauthorized,
		},
		"anonymous, unknown path": {
			reason: "what exists is not for everybody to know", path: "/nothing", want: http.StatusUnauthorized,
		},
		"the API server": {
			reason: "a certificate of the client CA is authenticated", path: "/metrics/resource",
			certificate: certificate(f.ca, "apiserver", nil), want: http.StatusOK,
		},
		"the API server's name from another CA": {
			reason: "the name is worth what the CA is", path: "/metrics/resource",
			certificate: certificate(other, "apiserver", nil), want: http.StatusUnauthorized,
		},
		"an expired certificate": {
			reason: "time counts", path: "/metrics/resource",
			certificate: certificate(f.ca, "apiserver", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
			want:        http.StatusUnauthorized,
		},
		"a server's certificate": {
			reason: "one that may not authenticate a client does not", path: "/metrics/resource",
			certificate: certificate(f.ca, "apiserver", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
			want:        http.StatusUnauthorized,
		},
		"a token with the right": {
			reason: "metrics need nodes/metrics", path: "/metrics/resource", token: "good", want: http.StatusOK,
		},
		"a token without the right": {
			reason: "to be somebody is not enough", path: "/metrics/resource", token: "powerless", want: http.StatusForbidden,
		},
		"a token with another right": {
			reason: "metrics are not stats", path: "/stats/summary", token: "good", want: http.StatusForbidden,
		},
		"an unknown token": {
			reason: "the API server does not know it", path: "/metrics/resource", token: "bad", want: http.StatusUnauthorized,
		},
		"the right for another node": {
			reason: "the port says which node it is", path: "/metrics/resource",
			certificate: certificate(f.ca, "neighbour", nil), want: http.StatusForbidden,
		},
		"health by its own right": {
			reason: "nodes/healthz is enough", path: "/healthz",
			certificate: certificate(f.ca, "prober", nil), want: http.StatusOK,
		},
		"health by the coarse right": {
			reason: "nodes/proxy is enough too", path: "/healthz",
			certificate: certificate(f.ca, "apiserver", nil), want: http.StatusOK,
		},
		"health is not metrics": {
			reason: "a fine right is no coarse one", path: "/metrics/resource",
			certificate: certificate(f.ca, "prober", nil), want: http.StatusForbidden,
		},
		"a path that is not there": {
			reason: "the rest of a kubelet is not here", path: "/pods",
			certificate: certificate(f.ca, "apiserver", nil), want: http.StatusNotFound,
		},
		"a path that would be cleaned": {
			reason: "what was authorized is what is served", path: "/metrics/../healthz",
			certificate: certificate(f.ca, "apiserver", nil), want: http.StatusNotFound,
		},
		"an encoded slash": {
			reason: "the decoded path is both authorized and served", path: "/metrics%2fresource", token: "good", want: http.StatusOK,
		},
		"a path below": {
			reason: "only whole paths are served", path: "/metrics/resource/x", token: "good", want: http.StatusNotFound,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, body := f.do(http.MethodGet, tc.path, tc.token, tc.certificate); got != tc.want {
				t.Errorf("%s: got %d %q, want %d", tc.reason, got, body, tc.want)
			}
		})
	}
}

func TestOnlyGetIsServed(t *testing.T) {
	v := &reviews{tokens: map[string]string{"all": "admin"}, rights: map[right]bool{
		"admin create spoke1/metrics": true, "admin get spoke1/metrics": true, "admin delete spoke1/metrics": true,
	}}
	f := newFixture(t, v, testDoor{})
	for method, want := range map[string]int{
		http.MethodPost: http.StatusMethodNotAllowed, http.MethodDelete: http.StatusMethodNotAllowed,
		http.MethodHead: http.StatusMethodNotAllowed,
		http.MethodPut:  http.StatusForbidden, "BREW": http.StatusForbidden,
	} {
		if got, _ := f.do(method, "/metrics/resource", "all", nil); got != want {
			t.Errorf("%s: got %d, want %d", method, got, want)
		}
	}
	// net/http's client cannot send it like the others.
	if _, ok := verbs[http.MethodConnect]; ok {
		t.Error("CONNECT has a verb")
	}
}

func TestAnAPIServerThatCannotBeAskedAllowsNothing(t *testing.T) {
	v := &reviews{tokens: map[string]string{"good": "prometheus"}, rights: map[right]bool{"prometheus get spoke1/metrics": true}, broken: true}
	f := newFixture(t, v, testDoor{"spoke1": says(http.StatusOK, "figures")})
	if got, _ := f.do(http.MethodGet, "/metrics/resource", "good", nil); got != http.StatusUnauthorized {
		t.Errorf("token: got %d, want 401", got)
	}
	apiserver := f.ca.issue(t, "apiserver", nil)
	if got, _ := f.do(http.MethodGet, "/metrics/resource", "", &apiserver); got != http.StatusForbidden {
		t.Errorf("certificate: got %d, want 403", got)
	}
}

func TestWhatTheClusterAnswersIsPassedOnWhole(t *testing.T) {
	v := &reviews{tokens: map[string]string{"t": "u"}, rights: map[right]bool{
		"u get spoke1/metrics": true, "u get spoke1/stats": true, "u get spoke1/healthz": true,
	}}
	cases := map[string]struct {
		reason string
		door   testDoor
		path   string
		want   int
		body   string
	}{
		"connected": {
			reason: "the answer is the cluster's", path: "/stats/summary", want: http.StatusOK, body: "{}",
			door: testDoor{"spoke1": says(http.StatusOK, "{}")},
		},
		"healthy": {
			reason: "health is that of the tunnel", path: "/healthz", want: http.StatusOK, body: "ok",
			door: testDoor{"spoke1": says(http.StatusOK, "")},
		},
		"not connected": {
			reason: "the error names the cluster and the reason", path: "/metrics/resource", want: http.StatusServiceUnavailable,
			body: "cluster \"spoke1\": not connected: lost\n", door: testDoor{},
		},
		"not connected, so not healthy": {
			reason: "the error names the cluster and the reason", path: "/healthz", want: http.StatusServiceUnavailable,
			body: "cluster \"spoke1\": not connected: lost\n", door: testDoor{},
		},
		"the session breaks": {
			reason: "a cut is no answer", path: "/metrics/resource", want: http.StatusBadGateway,
			body: "cluster spoke1: answer was cut off: unexpected EOF\n",
			door: testDoor{"spoke1": func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.MultiReader(strings.NewReader("half"), cut{}))}, nil
			}},
		},
		"no answer": {
			reason: "the error is told", path: "/metrics/resource", want: http.StatusBadGateway, body: "cluster spoke1: boom\n",
			door: testDoor{"spoke1": func(*http.Request) (*http.Response, error) { return nil, errors.New("boom") }},
		},
		"the agent refuses": {
			reason: "the agent's error is told, and is not the endpoint's own", path: "/metrics/resource", want: http.StatusBadGateway,
			body: "cluster spoke1: agent answered 503: \"no kubelet answered\"\n",
			door: testDoor{"spoke1": says(http.StatusServiceUnavailable, "no kubelet answered")},
		},
		"too much": {
			reason: "a peer does not decide what the hub reads", path: "/metrics/resource", want: http.StatusBadGateway,
			body: "cluster spoke1: the cluster's answer is too large\n",
			door: testDoor{"spoke1": says(http.StatusOK, strings.Repeat("x\n", answerBase))},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, v, tc.door)
			got, body := f.do(http.MethodGet, tc.path, "t", nil)
			if got != tc.want || body != tc.body {
				t.Errorf("%s: got %d %q, want %d %q", tc.reason, got, body, tc.want, tc.body)
			}
		})
	}
}

type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestTheDoorIsAskedForOurPathAlone(t *testing.T) {
	v := &reviews{tokens: map[string]string{"t": "u"}, rights: map[right]bool{"u get spoke1/metrics": true}}
	var asked *http.Request
	f := newFixture(t, v, testDoor{"spoke1": func(r *http.Request) (*http.Response, error) {
		asked = r
		return says(http.StatusOK, "")(r)
	}})
	f.do(http.MethodGet, "/metrics/resource?a=b&c=%0a", "t", nil)
	if got, want := asked.URL.String(), "http://node/metrics/resource"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	if len(asked.Header) != 0 {
		t.Errorf("headers were forwarded: %v", asked.Header)
	}
}

func TestClosingANodeClosesItsPort(t *testing.T) {
	f := newFixture(t, &reviews{}, testDoor{})
	f.server.Close("spoke1")
	if conn, err := net.Dial("tcp", f.address); err == nil {
		_ = conn.Close()
		t.Error("the port still answers")
	}
	f.server.Close("spoke1") // twice does nothing
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	f := newFixture(t, &reviews{}, testDoor{})
	_, port, err := net.SplitHostPort(f.address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	f.server.config.Address = "127.0.0.1"
	if err := f.server.Open(t.Context(), "spoke2", int32(number)); err == nil {
		f.server.Close("spoke2")
		t.Error("Open() took a port twice")
	}
}

func FuzzSubresourcesAreNeverEmpty(f *testing.F) {
	for _, seed := range []string{"/metrics", "/metrics/../pods", "/healthz", "/statsX", "", "//stats"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		asked := subresources(path)
		if len(asked) == 0 {
			t.Fatalf("%q needs no right", path)
		}
		// A fine right must not open what is not below its own path.
		for _, s := range asked {
			if (s == "stats" || s == "metrics") && path != "/"+s && !strings.HasPrefix(path, "/"+s+"/") {
				t.Fatalf("%q is opened by nodes/%s", path, s)
			}
		}
	})
}
