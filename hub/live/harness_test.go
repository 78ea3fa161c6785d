// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/tunnel"
)

const livePath = "/apis/live.spokelet.io/v1alpha1"

// hubAPI is the hub's API server, as far as the live API asks it. A token is
// the name of its user, whose group is devs; rights says what users may do.
type hubAPI struct {
	*httptest.Server
	rights  func(authorizationv1.SubjectAccessReviewSpec) bool
	frontCA *testCA
	// bundle vouches for the front proxy once changed is closed.
	bundle  []byte
	changed chan struct{}
}

// trust has every watch told of another bundle for the front proxy.
func (h *hubAPI) trust(bundle []byte) {
	h.bundle = bundle
	close(h.changed)
}

func newHubAPI(t testing.TB, rights func(authorizationv1.SubjectAccessReviewSpec) bool) *hubAPI {
	t.Helper()
	h := &hubAPI{rights: rights, frontCA: newTestCA(t), changed: make(chan struct{})}
	clients := newTestCA(t)
	cm := func(bundle []byte, version string) corev1.ConfigMap {
		return corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: extensionAuthentication, ResourceVersion: version},
			Data: map[string]string{
				"client-ca-file": string(clients.bundle()), "requestheader-client-ca-file": string(bundle),
				"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
				"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`, "requestheader-allowed-names": `["front-proxy"]`,
			},
		}
	}
	first := cm(h.frontCA.bundle(), "1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/configmaps/"+extensionAuthentication, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, first) })
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			writeJSON(w, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{first}})
			return
		}
		if r.URL.Query().Get("sendInitialEvents") != "" {
			http.Error(w, "no", http.StatusUnprocessableEntity)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-h.changed:
			writeJSON(w, map[string]any{"type": "MODIFIED", "object": cm(h.bundle, "2")})
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Authenticated = review.Spec.Token != ""
		review.Status.User = authenticationv1.UserInfo{Username: review.Spec.Token, Groups: []string{"devs"}}
		writeJSON(w, review)
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Status.Allowed = h.rights(review.Spec)
		writeJSON(w, review)
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// testAgent is the other end of a session: a server that is reached by HTTP/2 and
// by raw streams, as the tunnel's is.
type testAgent struct {
	*httptest.Server
	transport *http.Transport
}

func newTestAgent(t testing.TB, door http.HandlerFunc) *testAgent {
	t.Helper()
	a := &testAgent{Server: httptest.NewUnstartedServer(door)}
	a.Config.Protocols = new(http.Protocols)
	a.Config.Protocols.SetHTTP1(true)
	a.Config.Protocols.SetUnencryptedHTTP2(true)
	a.Start()
	a.transport = &http.Transport{
		Protocols:          new(http.Protocols),
		DisableCompression: true,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return a.Dial(ctx, kubeDoor) },
	}
	a.transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		a.transport.CloseIdleConnections()
		a.Close()
	})
	return a
}

func (a *testAgent) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != kubeDoor {
		return nil, fmt.Errorf("door %q: %w", r.URL.Host, tunnel.ErrDoor)
	}
	return a.transport.RoundTrip(r)
}

func (a *testAgent) Dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", a.Listener.Addr().String())
}

func (a *testAgent) Info() SessionInfo { return SessionInfo{ConnectedAt: noon, AgentVersion: "v0.1.0"} }

// brokenSession is a session whose way is barred.
type brokenSession struct{ err error }

func (b brokenSession) RoundTrip(*http.Request) (*http.Response, error) { return nil, b.err }
func (b brokenSession) Dial(context.Context, string) (net.Conn, error)  { return nil, b.err }
func (b brokenSession) Info() SessionInfo                               { return SessionInfo{} }

// fleet is Sessions and Records of a fixed set. A cluster without session is
// known and not connected.
type fleet struct {
	mu       sync.Mutex
	clusters map[string]Session
	tell     []func(SessionEvent)
}

func (f *fleet) Get(_ context.Context, cluster string) (Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.clusters[cluster]; s != nil {
		return s, nil
	}
	return nil, &tunnel.NotConnectedError{Cluster: cluster, Reason: tunnel.ErrLost}
}

func (f *fleet) set(cluster string, s Session) {
	f.mu.Lock()
	f.clusters[cluster] = s
	tell := f.tell
	f.mu.Unlock()
	for _, t := range tell {
		t(SessionEvent{Cluster: cluster, Session: s, Reason: tunnel.ErrLost})
	}
}

func (f *fleet) sessions() Sessions { return fleetSessions{f} }

type fleetSessions struct{ *fleet }

func (f fleetSessions) Subscribe(tell func(SessionEvent)) (cancel func()) {
	f.mu.Lock()
	f.tell = append(f.tell, tell)
	f.mu.Unlock()
	for name, s := range f.clusters {
		if s != nil {
			tell(SessionEvent{Cluster: name, Session: s})
		}
	}
	return func() {}
}

func (f *fleet) Subscribe(_ context.Context, tell func(RecordEvent)) error {
	for name := range f.clusters {
		tell(joined(name, "prod"))
	}
	return nil
}

func denyImpersonation(r authorizationv1.SubjectAccessReviewSpec) bool {
	return r.ResourceAttributes != nil && !strings.HasPrefix(r.ResourceAttributes.Verb, "impersonate")
}

func allowC1(r authorizationv1.SubjectAccessReviewSpec) bool {
	return r.ResourceAttributes != nil && r.ResourceAttributes.Resource == clustersResource && r.ResourceAttributes.Name == "c1"
}

// liveServer is a running server and how to reach it as a user.
type liveServer struct {
	address string
	client  *http.Client
	hub     *hubAPI
}

func allowAll(authorizationv1.SubjectAccessReviewSpec) bool { return true }

func start(t testing.TB, f *fleet, rights func(authorizationv1.SubjectAccessReviewSpec) bool, limits Limits) *liveServer {
	t.Helper()
	return startWith(t, f, rights, Config{Limits: limits})
}

// startWith starts a server whose configuration has what the test does not choose
// filled in.
func startWith(t testing.TB, f *fleet, rights func(authorizationv1.SubjectAccessReviewSpec) bool, config Config) *liveServer {
	t.Helper()
	hub := newHubAPI(t, rights)
	cert, key := selfSigned(t, 1)
	certificate, err := NewServingCertificate(func() ([]byte, []byte, error) { return cert, key, nil })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// It ends in the clean-up, when t.Context has ended.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	config.Listener, config.Certificate, config.Rest = l, certificate, &rest.Config{Host: hub.URL}
	config.Sessions, config.Records, config.Logger = f.sessions(), f, logr.Discard()
	s, err := New(ctx, config)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Start(ctx) }()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // whose certificate it is, is not at issue here
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	live := &liveServer{address: l.Addr().String(), client: &http.Client{Transport: transport}, hub: hub}
	live.ready(t)
	return live
}

// ready waits until all paths are served and the server's own start is over.
func (s *liveServer) ready(t testing.TB) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		res := s.do(t, http.MethodGet, "/readyz", "", nil)
		body, err := io.ReadAll(res.Body)
		last = string(body)
		return res.StatusCode == http.StatusOK, err
	})
	if err != nil {
		t.Fatalf("not ready: %v: %s", err, last)
	}
}

func (s *liveServer) do(t testing.TB, method, path, user string, header http.Header, body ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.address+path, strings.NewReader(strings.Join(body, "")))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+user)
	}
	res, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// view creates a ViewWork; the Status is nil when it was answered.
func (s *liveServer) view(t *testing.T, user, namespace string, spec livev1alpha1.ViewWorkSpec) (*livev1alpha1.ViewWork, *metav1.Status) {
	t.Helper()
	body, err := json.Marshal(livev1alpha1.ViewWork{
		TypeMeta:   metav1.TypeMeta{APIVersion: "live.spokelet.io/v1alpha1", Kind: "ViewWork"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "look-"},
		Spec:       spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	res := s.do(t, http.MethodPost, livePath+"/namespaces/"+namespace+"/viewworks", user,
		http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}, string(body))
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusCreated {
		return nil, readStatus(t, raw)
	}
	v := &livev1alpha1.ViewWork{}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
	return v, nil
}

func readStatus(t *testing.T, raw []byte) *metav1.Status {
	t.Helper()
	s := &metav1.Status{}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(s); err != nil || s.Kind != "Status" {
		t.Fatalf("answer is no Status: %q: %v", raw, err)
	}
	return s
}

// callerSeen is who a request at the kube door says it is for.
func callerSeen(r *http.Request) string {
	p, err := impersonation.From(r.Header)
	if err != nil {
		return err.Error()
	}
	return p.User + " " + strings.Join(p.Groups, ",")
}
