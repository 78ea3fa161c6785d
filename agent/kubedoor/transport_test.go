// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
)

// requester is alice as the hub's controllers name her.
func requester() wire.Requester {
	return wire.Requester{User: "alice", Groups: []string{"dev", "ops", "system:masters", "system:authenticated"}}
}

// enabled makes a door for clients inside the agent.
func enabled(t *testing.T, cfg Config) *Door {
	t.Helper()
	cfg.Enabled = true
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(d.upstream.pool) })
	return d
}

func configFor(t *testing.T, d *Door) *rest.Config {
	t.Helper()
	cfg, err := d.Config(requester())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func clientOf(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func pods(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p"}}]}`)
}

func TestTransportImpersonatesRequester(t *testing.T) {
	api := newAPIServer(t, pods)
	cfg := configFor(t, enabled(t, Config{Rest: api.config(), Groups: []string{"dev"}}))
	list, err := clientOf(t, cfg).CoreV1().Pods("a").List(t.Context(), metav1.ListOptions{LabelSelector: "x=y"})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	r := api.one(t)
	if r.ProtoMajor != 2 || r.URL.Path != "/api/v1/namespaces/a/pods" || r.URL.RawQuery != "labelSelector=x%3Dy" {
		t.Errorf("sent %s over %s", r.URL, r.Proto)
	}
	checkCaller(t, "an ordinary request", r)
	if got := r.Header.Get("Accept-Encoding"); got != "" {
		t.Errorf("asked for %q, which would be unpacked at the agent's cost", got)
	}
	if cfg.QPS >= 0 {
		t.Error("the client limits its rate by itself")
	}
}

func TestTransportScrubsImpersonation(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*rest.Config)
	}{
		"impersonation": {
			reason: "client-go states it in headers of its own",
			change: func(c *rest.Config) {
				c.Impersonate = rest.ImpersonationConfig{UserName: "root", UID: "0", Groups: []string{"system:masters"}, Extra: map[string][]string{"scopes": {"all"}}}
			},
		},
		"a token":  {reason: "it may be anybody's", change: func(c *rest.Config) { c.BearerToken = "forged" }},
		"password": {reason: "it may be anybody's", change: func(c *rest.Config) { c.Username, c.Password = "root", "secret" }},
		"headers": {
			reason: "every spelling is a claim",
			change: func(c *rest.Config) { c.Wrap(claims) },
		},
		"another host": {
			reason: "the API server is the door's to choose",
			change: func(c *rest.Config) { c.Host = "https://elsewhere.invalid:1" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, pods)
			cfg := configFor(t, enabled(t, Config{Rest: api.config(), Groups: []string{"dev"}}))
			tc.change(cfg)
			if _, err := clientOf(t, cfg).CoreV1().Pods("a").List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			checkCaller(t, tc.reason, api.one(t))
		})
	}
}

// claims adds every claim that a header can make.
func claims(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		for _, name := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes", "X-Remote-User", "X-Remote-Group", "Spokelet-Principal-User"} {
			for _, spelling := range []string{name, strings.ToLower(name), strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", ".")} {
				if !strings.HasPrefix(name, "X-") || spelling == name {
					r.Header[spelling] = []string{"system:admin", "system:masters"}
				}
			}
		}
		r.Header.Set("Authorization", "Bearer forged")
		r.Trailer = http.Header{"Impersonate-User": {"root"}}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransportRefusesWhatDoorRefuses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		method  string
		target  string
		header  http.Header
		code    int
		status  metav1.StatusReason
		message string
	}{
		"another namespace":  {reason: "the owner allows a alone", target: "/api/v1/namespaces/kube-system/secrets", code: 403, status: metav1.StatusReasonForbidden, message: "kube-system"},
		"all namespaces":     {reason: "the owner allows a alone", target: "/api/v1/pods", code: 403, status: metav1.StatusReasonForbidden, message: "within namespaces"},
		"its own namespace":  {reason: "its labels say what may run there", method: http.MethodPatch, target: "/api/v1/namespaces/a", code: 403, status: metav1.StatusReasonForbidden, message: "itself"},
		"a path of two ways": {reason: "one path is checked and sent", target: "/api/v1/namespaces/a/../kube-system/secrets", code: 400, status: metav1.StatusReasonBadRequest, message: "canonical"},
		"an encoded slash":   {reason: "one path is checked and sent", target: "/api/v1/namespaces/a%2fpods", code: 400, status: metav1.StatusReasonBadRequest, message: "canonical"},
		"an upgrade": {
			reason: "streams have no client here", target: "/api/v1/namespaces/a/pods/p/exec",
			header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, code: 400, status: metav1.StatusReasonBadRequest, message: "upgrade",
		},
		"half an upgrade": {
			reason: "a reader behind might upgrade", target: "/api/v1/namespaces/a/pods/p/exec",
			header: http.Header{"Upgrade": {"websocket"}}, code: 400, status: metav1.StatusReasonBadRequest, message: "upgrade",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, ok)
			var logged []string
			log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
			cfg := configFor(t, enabled(t, Config{Rest: api.config(), Namespaces: []string{"a"}, Logger: log}))
			body := &closing{Reader: strings.NewReader("{}")}
			r, err := http.NewRequestWithContext(t.Context(), tc.method, cfg.Host+tc.target, body)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(r.Header, tc.header)
			res, err := cfg.Transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			checkStatus(t, tc.reason, res, tc.code, tc.status, tc.message)
			api.none(t)
			if !body.closed {
				t.Error("the request's body was left open")
			}
			if len(logged) != 1 || !strings.Contains(logged[0], `"user"="alice"`) {
				t.Errorf("the owner's log says %q of the refusal", logged)
			}
		})
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestTransportRefusalIsStatusError(t *testing.T) {
	api := newAPIServer(t, pods)
	client := clientOf(t, configFor(t, enabled(t, Config{Rest: api.config(), Namespaces: []string{"a"}})))
	if _, err := client.CoreV1().Pods("b").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("namespace b: %v, want Forbidden", err)
	}
	if _, err := client.CoreV1().Pods("b").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("watch of namespace b: %v, want Forbidden", err)
	}
	api.none(t)
}

func TestTransportLeavesRequestUnchanged(t *testing.T) {
	api := newAPIServer(t, ok)
	cfg := configFor(t, enabled(t, Config{Rest: api.config()}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer own")
	res, err := cfg.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if diff := cmp.Diff(http.Header{"Authorization": {"Bearer own"}}, r.Header); diff != "" {
		t.Errorf("a RoundTripper does not change requests (-want +got):\n%s", diff)
	}
}

func TestTransportKeepsPathOfAPIServer(t *testing.T) {
	api := newAPIServer(t, pods)
	below := api.config()
	below.Host += "/clusters/c1"
	client := clientOf(t, configFor(t, enabled(t, Config{Rest: below, Namespaces: []string{"a"}})))
	if _, err := client.CoreV1().Pods("a").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := api.one(t).URL.Path; got != "/clusters/c1/api/v1/namespaces/a/pods" {
		t.Errorf("sent %s", got)
	}
}

func TestConfigRefusesRequester(t *testing.T) {
	cases := map[string]struct {
		reason    string
		closed    bool
		requester wire.Requester
		message   string
	}{
		"a door that is not enabled": {reason: "the owner has closed it", closed: true, requester: requester(), message: "not enabled"},
		"nobody":                     {reason: "an empty name is nobody", message: "empty"},
		"anonymous":                  {reason: "it would become authenticated", requester: wire.Requester{User: "system:anonymous"}, message: "anonymous"},
		"a mapped name":              {reason: "it reads as somebody else's", requester: wire.Requester{User: "hub:alice"}, message: "prefix"},
		"a name of two lines":        {reason: "it would end the header", requester: wire.Requester{User: "a\r\nImpersonate-Group: system:masters"}, message: "control"},
		"a group of two lines":       {reason: "it would end the header", requester: wire.Requester{User: "a", Groups: []string{"b\nc"}}, message: "control"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := New(Config{Rest: &rest.Config{}, Enabled: !tc.closed, Groups: []string{"*"}})
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := d.Config(tc.requester)
			if cfg != nil || err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: config %v, %v", tc.reason, cfg, err)
			}
			user, groups, err := d.Identity(tc.requester)
			if user != "" || groups != nil || err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: identity %q %q, %v", tc.reason, user, groups, err)
			}
		})
	}
}

func TestIdentityIsWhatDoorImpersonates(t *testing.T) {
	cases := map[string]struct {
		reason string
		passed []string
		want   []string
	}{
		"named groups": {reason: "the owner names what is passed on", passed: []string{"dev"}, want: []string{"hub:dev"}},
		"every group":  {reason: "the hub's own components are nobody here", passed: []string{"*"}, want: []string{"hub:dev", "hub:ops"}},
		"no group":     {reason: "none is named"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := enabled(t, Config{Rest: &rest.Config{}, Groups: tc.passed})
			user, groups, err := d.Identity(requester())
			if err != nil || user != "hub:alice" {
				t.Errorf("user %q, %v", user, err)
			}
			if diff := cmp.Diff(tc.want, groups); diff != "" {
				t.Errorf("%s: groups (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
