// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubedoor

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/impersonation"
)

const nodeAccount = "system:serviceaccount:spokelet-agent:spokelet-node"

// located are pods of the hub by their place there, each "namespace here/UID".
type located map[string]string

func (l located) Locate(key wire.PodKey) (string, types.UID, bool) {
	namespace, uid, ok := strings.Cut(l[key.String()], "/")
	return namespace, types.UID(uid), ok
}

// nodeConfig is a door with one pod of the hub, team/web, and a ceiling for
// users that it does not lie within.
func nodeConfig(api *apiServer) Config {
	return Config{
		Rest: api.config(), Namespaces: []string{"a"},
		Pods: located{"team/web": "hub-team/u1"}, NodeAccount: nodeAccount,
	}
}

// asNode is the header of the virtual kubelet, about the pod of a UID.
func asNode(uid string) http.Header {
	h := http.Header{}
	impersonation.Set(h, impersonation.Principal{Kind: impersonation.Node, PodUID: uid})
	return h
}

func TestNodeReadsLogsOfItsPods(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, nodeConfig(api))
	h := asNode("u1")
	h["Authorization"] = []string{"Bearer forged"}
	h["X-Remote-Group"] = []string{"system:masters"}
	res := get(t, s, "/api/v1/namespaces/team/pods/web/log?tailLines=3&container=c%2B&follow=true", h)
	if body, _ := io.ReadAll(res.Body); string(body) != "ok" {
		t.Fatalf("answered %q", body)
	}
	r := api.one(t)
	if want := "/api/v1/namespaces/hub-team/pods/web/log?container=c%2B&follow=true&tailLines=3"; r.RequestURI != want {
		t.Errorf("forwarded %s, want %s", r.RequestURI, want)
	}
	want := http.Header{"Authorization": {"Bearer " + agentToken}, "Impersonate-User": {nodeAccount}}
	r.Header.Del("User-Agent")
	r.Header.Del("Accept-Encoding")
	if diff := cmp.Diff(want, r.Header); diff != "" {
		t.Errorf("forwarded header (-want +got):\n%s", diff)
	}
}

func TestNodeStreamsToItsPods(t *testing.T) {
	for _, target := range []string{
		"exec?command=sh&command=-c&container=c&stdin=true&tty=true", "attach?container=c&stdout=true", "portforward", "portforward?ports=80",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, protocol := range []string{"SPDY/3.1", "websocket"} {
				t.Run(method+" "+target+" "+protocol, func(t *testing.T) {
					api := newAPIServer(t, ok)
					raw(t, open(t, nodeConfig(api)).Listener.Addr().String(), method+" /api/v1/namespaces/team/pods/web/"+target+
						" HTTP/1.1\r\nHost: kube\r\nSpokelet-Principal: node\r\nSpokelet-Pod-Uid: u1\r\n"+
						"Connection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
					r := api.one(t)
					if got, want := r.RequestURI, "/api/v1/namespaces/hub-team/pods/web/"+target; got != want || r.Method != method {
						t.Errorf("forwarded %s %s, want %s", r.Method, got, want)
					}
					if got := r.Header["Impersonate-User"]; !slices.Equal(got, []string{nodeAccount}) || r.Header["Spokelet-Pod-Uid"] != nil {
						t.Errorf("forwarded as %v: %v", got, r.Header)
					}
				})
			}
		}
	}
}

func TestNodeIsServedWhileUsersAreNot(t *testing.T) {
	api := newAPIServer(t, ok)
	cfg := nodeConfig(api)
	get(t, serve(t, cfg), "/api/v1/namespaces/team/pods/web/log", asNode("u1"))
	api.one(t)
}

func TestNodeIsRefused(t *testing.T) {
	const pod = "/api/v1/namespaces/team/pods/web"
	log := pod + "/log"
	cases := map[string]struct {
		reason  string
		method  string
		path    string
		header  http.Header
		code    int
		message string
	}{
		"another pod": {
			reason: "it is not the hub's", path: "/api/v1/namespaces/team/pods/other/log", header: asNode("u1"),
			code: 404, message: `pods "other" not found`,
		},
		"a namespace here": {
			reason: "the hub's namespaces are not this cluster's", path: "/api/v1/namespaces/hub-team/pods/web/log", header: asNode("u1"),
			code: 404, message: `pods "web" not found`,
		},
		"another UID": {
			reason: "the pod was replaced by one of its name", path: log, header: asNode("u2"), code: 404, message: `pods "web" not found`,
		},
		"no UID":            {reason: "nothing says which pod is meant", path: log, header: asNode(""), code: 403, message: "not stated"},
		"two UIDs":          {reason: "one of them is forged", path: log, header: http.Header{impersonation.HeaderKind: {"node"}, impersonation.HeaderPodUID: {"u1", "u2"}}, code: 403, message: "ambiguous"},
		"a UID twice":       {reason: "one of them is forged", path: log, header: http.Header{impersonation.HeaderKind: {"node"}, impersonation.HeaderPodUID: {"u1", "u1"}}, code: 403, message: "ambiguous"},
		"a user":            {reason: "a user is not a node", path: log, header: merge(alice(), http.Header{impersonation.HeaderPodUID: {"u1"}}), code: 403, message: "ambiguous"},
		"the pod":           {reason: "it serves the hub no objects", path: pod, header: asNode("u1"), code: 403, message: "path"},
		"all pods":          {reason: "it serves the hub no objects", path: "/api/v1/namespaces/team/pods", header: asNode("u1"), code: 403, message: "path"},
		"a slash behind":    {reason: "there is one spelling", path: log + "/", header: asNode("u1"), code: 403, message: "path"},
		"a part too many":   {reason: "there is one spelling", path: log + "/x", header: asNode("u1"), code: 403, message: "path"},
		"a part missing":    {reason: "there is one spelling", path: "/v1/namespaces/team/pods/web/log", header: asNode("u1"), code: 403, message: "path"},
		"another group":     {reason: "pods are of the core", path: "/apis/v1/namespaces/team/pods/web/log", header: asNode("u1"), code: 403, message: "path"},
		"another resource":  {reason: "a node has pods only", path: "/api/v1/namespaces/team/services/web/proxy", header: asNode("u1"), code: 403, message: "path"},
		"a capital":         {reason: "such a name is no pod's", path: "/api/v1/namespaces/team/pods/Web/log", header: asNode("u1"), code: 403, message: "namespace/name"},
		"discovery":         {reason: "it is for users", path: "/version", header: asNode("u1"), code: 403, message: "path"},
		"nodes":             {reason: "it is for users", path: "/api/v1/nodes", header: asNode(""), code: 403, message: "path"},
		"log by POST":       {reason: "a log is read", method: http.MethodPost, path: log, header: asNode("u1"), code: 403, message: "POST"},
		"log by DELETE":     {reason: "a log is read", method: http.MethodDelete, path: log, header: asNode("u1"), code: 403, message: "DELETE"},
		"exec, no upgrade":  {reason: "it could only fail", path: pod + "/exec?command=sh", header: asNode("u1"), code: 403, message: "upgrade"},
		"exec by PUT":       {reason: "the API server knows two methods", method: http.MethodPut, path: pod + "/exec", header: asNode("u1"), code: 403, message: "PUT"},
		"certificates":      {reason: "whom to trust is the owner's to say", path: log + "?insecureSkipTLSVerifyBackend=true", header: asNode("u1"), code: 403, message: "insecureSkip"},
		"certificates, %":   {reason: "it is decoded once", path: log + "?insecure%53kipTLSVerifyBackend=true", header: asNode("u1"), code: 403, message: "insecureSkip"},
		"an unknown query":  {reason: "it may widen what is asked", path: log + "?container=c&path=/etc", header: asNode("u1"), code: 403, message: "path"},
		"a semicolon":       {reason: "readers differ on it", path: log + "?container=c;insecureSkipTLSVerifyBackend=true", header: asNode("u1"), code: 403, message: "malformed"},
		"a broken escape":   {reason: "readers differ on it", path: log + "?container=%zz", header: asNode("u1"), code: 403, message: "malformed"},
		"an encoded slash":  {reason: "one path is checked and forwarded", path: "/api/v1/namespaces/team/pods/web%2flog", header: asNode("u1"), code: 400, message: "canonical"},
		"an encoded parent": {reason: "one path is checked and forwarded", path: "/api/v1/namespaces/team/pods/x/%2e%2e/web/log", header: asNode("u1"), code: 400, message: "canonical"},
		"half an upgrade":   {reason: "a reader behind might upgrade", path: pod + "/exec", header: merge(asNode("u1"), http.Header{"Upgrade": {"SPDY/3.1"}}), code: 400, message: "upgrade"},
	}
	for _, other := range []string{"eviction", "ephemeralcontainers", "proxy", "binding", "status", "resize", "run", "Exec", "exec%20", "logs"} {
		cases["subresource "+other] = struct {
			reason  string
			method  string
			path    string
			header  http.Header
			code    int
			message string
		}{reason: "a kubelet does not serve it", method: http.MethodPost, path: pod + "/" + other, header: asNode("u1"), code: 403, message: "subresource"}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(t, ok)
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			res := do(t, open(t, nodeConfig(api)), method, tc.path, tc.header)
			reason := map[int]metav1.StatusReason{
				400: metav1.StatusReasonBadRequest, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
			}[tc.code]
			checkStatus(t, tc.reason, res, tc.code, reason, tc.message)
			api.none(t)
		})
	}
}

func TestNodeIsRefusedWithoutPods(t *testing.T) {
	api := newAPIServer(t, ok)
	res := get(t, open(t, Config{Rest: api.config()}), "/api/v1/namespaces/team/pods/web/log", asNode("u1"))
	checkStatus(t, "nothing runs for the hub", res, 403, metav1.StatusReasonForbidden, "no pods")
	api.none(t)
}

func TestNodeLogRefusesUpgrade(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, nodeConfig(api))
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /api/v1/namespaces/team/pods/web/log HTTP/1.1\r\nHost: kube\r\nSpokelet-Principal: node\r\n"+
		"Spokelet-Pod-Uid: u1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	checkStatus(t, "the API server would serve a WebSocket", res, 403, metav1.StatusReasonForbidden, "upgrade")
	api.none(t)
}

// TestNodeReachesItsPodOnly sends every trick of the hostile tests as
// the node, as a request and as an upgrade, over the wire.
func TestNodeReachesItsPodOnly(t *testing.T) {
	api := newAPIServer(t, ok)
	s := open(t, nodeConfig(api))
	var all []string
	for _, target := range targets() {
		all = append(all, target, strings.NewReplacer("namespaces/a", "namespaces/team", "secrets", "pods/web/exec", "pods", "pods/web/log").Replace(target))
	}
	for _, trick := range []string{"/", "//", "/./", "/x/../", "%2f", "/%2e/", ";/", "%00/", `\`} {
		for _, sub := range []string{"exec", "log", "attach", "portforward", "proxy", "eviction"} {
			all = append(all,
				"/api/v1/namespaces/team/pods/web"+trick+sub, "/api/v1/namespaces/team/pods"+trick+"web/"+sub,
				"/api/v1/namespaces"+trick+"team/pods/web/"+sub, "/api/v1/namespaces/team/pods/web/"+sub+trick,
			)
		}
	}
	forwarded := 0
	for _, target := range all {
		for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"} {
			raw(t, s.Listener.Addr().String(), fmt.Sprintf("GET %s HTTP/1.1\r\nHost: kube\r\n"+
				"Spokelet-Principal: node\r\nSpokelet-Pod-Uid: u1\r\n%s\r\n", target, upgrade))
			select {
			case r := <-api.seen:
				forwarded++
				checkPod(t, target, r)
			default:
			}
		}
	}
	if forwarded == 0 {
		t.Error("nothing was forwarded: the test proves nothing")
	}
	t.Logf("%d of %d requests were forwarded, all for the pod", forwarded, 2*len(all))
}

func checkPod(t *testing.T, target string, r *http.Request) {
	t.Helper()
	path, _, _ := strings.Cut(r.RequestURI, "?")
	sub, within := strings.CutPrefix(path, "/api/v1/namespaces/hub-team/pods/web/")
	if !within || !slices.Contains([]string{"exec", "log", "attach", "portforward"}, sub) {
		t.Errorf("%q was forwarded as %q", target, r.RequestURI)
	}
}

func FuzzNodePath(f *testing.F) {
	for _, seed := range targets() {
		f.Add(seed, "container=c")
	}
	f.Add("/api/v1/namespaces/team/pods/web/exec", "command=sh&tty=true")
	f.Add("/api/v1/namespaces/team/pods/web/log", "insecureSkipTLSVerifyBackend=true")
	d := &Door{cfg: Config{Pods: located{"team/web": "hub-team/u1"}, NodeAccount: nodeAccount}}
	f.Fuzz(func(t *testing.T, path, query string) {
		for _, protocol := range []string{"", "SPDY/3.1"} {
			r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: query}}
			a, err := d.admitNode(r, path, protocol, impersonation.Principal{Kind: impersonation.Node, PodUID: "u1"})
			if err != nil {
				continue
			}
			if !strings.HasPrefix(path, "/api/v1/namespaces/team/pods/web/") || !strings.HasPrefix(a.path, "/api/v1/namespaces/hub-team/pods/web/") {
				t.Errorf("%q is forwarded as %q", path, a.path)
			}
			values, err := url.ParseQuery(*a.query)
			if err != nil || values.Has("insecureSkipTLSVerifyBackend") || values.Encode() != *a.query {
				t.Errorf("query %q is forwarded as %q", query, *a.query)
			}
		}
	})
}
