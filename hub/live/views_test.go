// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
)

// fakeCluster is the API server of a cluster, behind its kube door.
type fakeCluster struct {
	mu        sync.Mutex
	resources string // of the core group; guarded by mu
	requests  map[string]int
}

const podsResource = `{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"],"shortNames":["po"]}`

func newFakeCluster() *fakeCluster {
	return &fakeCluster{resources: podsResource, requests: map[string]int{}}
}

func (s *fakeCluster) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api":
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case "/apis":
		_, _ = io.WriteString(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case "/api/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+s.resources+`]}`)
	case "/api/v1/namespaces/a/pods":
		_, _ = io.WriteString(w, podList)
	case "/api/v1/namespaces/a/things":
		if !strings.Contains(s.resources, "things") {
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
			return
		}
		_, _ = io.WriteString(w, `{"kind":"ThingList","apiVersion":"v1","metadata":{},"items":[]}`)
	case "/api/v1/namespaces/html/pods":
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html>no</html>")
	case "/api/v1/namespaces/cut/pods":
		_, _ = io.WriteString(w, podList[:60])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, callerSeen(r)+" may not look at "+r.URL.Path)
	}
}

func status(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: message,
	})
}

func (s *fakeCluster) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

func (s *fakeCluster) set(resources string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = resources
}

func podsIn(namespace string) livev1alpha1.ViewWorkSpec {
	return viewSpec{Scope: scope{Resource: "po", Namespace: namespace}}
}

func TestViewOfOneClusterReturnsResponse(t *testing.T) {
	sp := newFakeCluster()
	s := start(t, &fleet{clusters: map[string]Session{"c1": newTestAgent(t, sp.serve), "down": nil}}, allowAll, Limits{})
	v, failure := s.view(t, "alice", "c1", podsIn("a"))
	if failure != nil {
		t.Fatal(failure.Message)
	}
	want := livev1alpha1.ViewWorkSummary{Clusters: 1, Items: 2}
	if diff := cmp.Diff(want, v.Status.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(v.Name, "look-") || len(v.Name) < 10 || v.ManagedFields != nil || v.Namespace != "c1" {
		t.Errorf("metadata %+v", v.ObjectMeta)
	}
	if c := v.Status.Clusters[0]; c.Cluster != "c1" || !c.Complete || string(c.Objects[0].Raw) != `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` {
		t.Errorf("answer %+v", c)
	}
	if _, failure = s.view(t, "bob", "c1", podsIn("a")); failure != nil || sp.count("/api/v1") != 1 {
		t.Errorf("discovery was read %d times for two views, %v", sp.count("/api/v1"), failure)
	}
}

func TestViewOfOneClusterReturnsErrorOfCluster(t *testing.T) {
	slow := make(chan struct{})
	defer close(slow)
	sp := newFakeCluster()
	f := &fleet{clusters: map[string]Session{
		"c1": newTestAgent(t, sp.serve), "down": nil,
		"slow": newTestAgent(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-slow:
			case <-r.Context().Done():
			}
		}),
	}}
	rights := func(r authorizationv1.SubjectAccessReviewSpec) bool { return r.User != "mallory" }
	s := start(t, f, rights, Limits{})
	// Its requests are of the slow cluster alone: others may take longer on a busy machine.
	impatient := start(t, f, rights, Limits{ViewTimeout: 200 * time.Millisecond})
	cases := map[string]struct {
		reason  string
		user    string
		cluster string
		spec    livev1alpha1.ViewWorkSpec
		code    int32
		message string
	}{
		"not connected":       {reason: "it is said at once", user: "alice", cluster: "down", spec: podsIn("a"), code: 503, message: `cluster "down": not connected: connection lost`},
		"unknown cluster":     {reason: "there is none", user: "alice", cluster: "nope", spec: podsIn("a"), code: 404, message: "nope"},
		"forbidden here":      {reason: "the hub says so", user: "mallory", cluster: "c1", spec: podsIn("a"), code: 403, message: "mallory"},
		"forbidden there":     {reason: "the cluster's own words", user: "alice", cluster: "c1", spec: podsIn("b"), code: 403, message: "alice devs,system:authenticated may not look at /api/v1/namespaces/b/pods"},
		"unknown resource":    {reason: "the cluster has none", user: "alice", cluster: "c1", spec: viewSpec{Scope: scope{Resource: "foos.x.io"}}, code: 404, message: `cluster "c1": it has no resource type "foos.x.io"`},
		"malformed":           {reason: "the field is named", user: "alice", cluster: "c1", spec: viewSpec{Scope: scope{Resource: "po", FieldSelector: "x"}}, code: 422, message: "spec.scope.fieldSelector"},
		"no namespace":        {reason: "it would be a guess", user: "alice", cluster: "c1", spec: podsIn(""), code: 400, message: "allNamespaces"},
		"answer without type": {reason: "whatever came, it is an error", user: "alice", cluster: "c1", spec: podsIn("html"), code: 502, message: "without a Status"},
		"cut answer":          {reason: "half a list is none", user: "alice", cluster: "c1", spec: podsIn("cut"), code: 502, message: `cluster "c1"`},
		"slow cluster":        {reason: "it has its time and no more", user: "alice", cluster: "slow", spec: podsIn("a"), code: 504, message: `cluster "slow"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := s
			if tc.cluster == "slow" {
				asked = impatient
			}
			_, failure := asked.view(t, tc.user, tc.cluster, tc.spec)
			if failure == nil {
				t.Fatalf("%s: answered", tc.reason)
			}
			if failure.Code != tc.code || !strings.Contains(failure.Message, tc.message) {
				t.Errorf("%s: %d %q; want %d naming %q", tc.reason, failure.Code, failure.Message, tc.code, tc.message)
			}
		})
	}
}

func TestViewReadsDiscoveryAgainWhenResourceIsUnknown(t *testing.T) {
	sp := newFakeCluster()
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, sp.serve)}}
	s := start(t, f, allowAll, Limits{})
	things := viewSpec{Scope: scope{Resource: "things", Namespace: "a"}}
	if _, failure := s.view(t, "alice", "c1", things); failure == nil {
		t.Fatal("things are there before they are")
	}
	sp.set(podsResource + `,{"name":"things","namespaced":true,"kind":"Thing","verbs":["list"]}`)
	if _, failure := s.view(t, "alice", "c1", things); failure != nil {
		t.Errorf("a new resource is not found: %s", failure.Message)
	}
	sp.set(podsResource)
	if _, failure := s.view(t, "alice", "c1", things); failure == nil || !strings.Contains(failure.Message, "no resource type") {
		t.Errorf("a resource that is gone: %v", failure)
	}
	before := sp.count("/api/v1")
	f.set("c1", f.clusters["c1"]) // a new session: the cluster may be another version
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil || sp.count("/api/v1") != before+1 {
		t.Errorf("discovery outlived its session: %v", failure)
	}
}

func TestViewOfManyClustersReportsFailures(t *testing.T) {
	f := &fleet{clusters: map[string]Session{"down": nil, "secret": newTestAgent(t, newFakeCluster().serve)}}
	for i := range 5 {
		f.clusters[fmt.Sprintf("c%d", i)] = newTestAgent(t, newFakeCluster().serve)
	}
	rights := func(r authorizationv1.SubjectAccessReviewSpec) bool {
		return r.ResourceAttributes != nil && r.ResourceAttributes.Verb == "create" && r.ResourceAttributes.Namespace != "secret"
	}
	s := start(t, f, rights, Limits{ViewConcurrency: 2})
	question := podsIn("a")
	question.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	v, failure := s.view(t, "alice", "anywhere", question)
	if failure != nil {
		t.Fatal(failure.Message)
	}
	want := livev1alpha1.ViewWorkSummary{Clusters: 6, Failed: 1, Forbidden: 1, Items: 10, Partial: true}
	if diff := cmp.Diff(want, v.Status.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	var order []string
	for _, c := range v.Status.Clusters {
		order = append(order, c.Cluster)
	}
	if diff := cmp.Diff([]string{"c0", "c1", "c2", "c3", "c4", "down"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if e := v.Status.Clusters[5].Error; e == nil || e.Code != 503 || e.Reason != metav1.StatusReasonServiceUnavailable {
		t.Errorf("error of the cluster that is down: %+v", e)
	}
	if _, failure = s.view(t, "alice", "secret", question); failure == nil || failure.Code != http.StatusForbidden {
		t.Errorf("the namespace that bears the question is not checked: %v", failure)
	}
	question.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "none"}}
	if v, failure = s.view(t, "alice", "anywhere", question); failure != nil || v.Status.Summary.Partial || len(v.Status.Clusters) != 0 {
		t.Errorf("no cluster selected: %+v, %v", v, failure)
	}
}

// TestForbiddenCountIsIndependentOfSelector asks with selectors that match clusters
// which the caller may not look at, and with others that match none.
func TestForbiddenCountIsIndependentOfSelector(t *testing.T) {
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "secret1": nil, "secret2": nil}}
	cases := map[string]struct {
		reason    string
		may       func(namespace string) bool
		forbidden int32
	}{
		"one namespace": {reason: "two clusters are not the caller's", may: func(ns string) bool { return ns == "c1" }, forbidden: 2},
		"each by name":  {reason: "nothing is hidden", may: func(ns string) bool { return ns != "" }},
		"all at once":   {reason: "nothing is hidden", may: func(string) bool { return true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := start(t, f, func(r authorizationv1.SubjectAccessReviewSpec) bool {
				return r.ResourceAttributes != nil && tc.may(r.ResourceAttributes.Namespace)
			}, Limits{})
			for _, env := range []string{"prod", "none"} {
				question := podsIn("a")
				question.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": env}}
				v, failure := s.view(t, "alice", "c1", question)
				if failure != nil {
					t.Fatal(failure.Message)
				}
				sum := v.Status.Summary
				if sum.Forbidden != tc.forbidden || sum.Partial != (tc.forbidden+sum.Failed > 0) {
					t.Errorf("%s: env=%s: %+v, want %d forbidden", tc.reason, env, sum, tc.forbidden)
				}
			}
		})
	}
}

func TestViewOmitsClusterWhenAuthorizationFails(t *testing.T) {
	errBoom := errors.New("boom")
	s := &viewStorage{authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", errBoom
	})}
	if v := s.queryClusterIfAllowed(t.Context(), "secret1", nil, nil, 0); v != nil {
		t.Errorf("a caller of whom nobody knows what they may is told %+v", v)
	}
}

func TestViewResponseIsLimited(t *testing.T) {
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "c2": newTestAgent(t, newFakeCluster().serve)}}
	s := start(t, f, allowAll, Limits{ViewBytes: 1 << 10, ViewTotalBytes: 2 * (itemOverhead + 100)})
	question := podsIn("a")
	question.ClusterSelector = &metav1.LabelSelector{}
	v, failure := s.view(t, "alice", "c1", question)
	if failure != nil {
		t.Fatal(failure.Message)
	}
	want := livev1alpha1.ViewWorkSummary{Clusters: 2, Incomplete: 2, Items: 2, Partial: true}
	if diff := cmp.Diff(want, v.Status.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if c := v.Status.Clusters[0]; !strings.Contains(c.Message, "cut at") || c.Complete {
		t.Errorf("what is missing is not stated: %+v", c)
	}
}

func TestViewsBeyondLimitGetTooManyRequests(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	})}}
	s := start(t, f, allowAll, Limits{ViewsInFlight: 1})
	first := make(chan struct{})
	go func() {
		defer close(first)
		s.view(t, "alice", "c1", podsIn("a"))
	}()
	<-entered
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure == nil || failure.Code != http.StatusTooManyRequests || failure.Details.RetryAfterSeconds != 1 {
		t.Errorf("answer = %+v, want 429 and a second", failure)
	}
	close(leave)
	for {
		select {
		case <-entered:
		case <-first:
			return
		}
	}
}

func TestViewWithUnknownFieldIsRefused(t *testing.T) {
	s := start(t, &fleet{clusters: map[string]Session{"c1": brokenSession{err: errors.New("must not be asked")}}}, allowAll, Limits{})
	body := `{"apiVersion":"live.spokelet.io/v1alpha1","kind":"ViewWork","spec":{"scope":{"resource":"po","labelSelector":{"app":"nginx"}}}}`
	for _, query := range []string{"", "?fieldValidation=Ignore"} {
		res := s.do(t, http.MethodPost, livePath+"/namespaces/c1/viewworks"+query, "alice", http.Header{"Content-Type": {"application/json"}}, body)
		raw, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(raw), "labelSelector.app") {
			t.Errorf("%q: answered %d %s; a dropped selector selects everything", query, res.StatusCode, raw)
		}
	}
}
