// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/quota"
)

func TestViewsPerUserAreLimited(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fleet{clusters: map[string]Session{
		"slow": newTestAgent(t, func(w http.ResponseWriter, _ *http.Request) {
			entered <- struct{}{}
			<-leave
			status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
		}),
		"c1": newTestAgent(t, newFakeCluster().serve),
	}}
	s := start(t, f, allowAll, Limits{ViewsPerUser: 1})
	first := make(chan struct{})
	go func() {
		defer close(first)
		s.view(t, "alice", "slow", podsIn("a"))
	}()
	<-entered
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure == nil || failure.Code != http.StatusTooManyRequests || failure.Details.RetryAfterSeconds != 1 {
		t.Errorf("a second view of one user: %+v, want 429 and a second", failure)
	}
	if _, failure := s.view(t, "bob", "c1", podsIn("a")); failure != nil {
		t.Errorf("another user: %+v, want an answer", failure)
	}
	close(leave)
	<-first
	if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
		t.Errorf("the same user thereafter: %+v, want an answer", failure)
	}
}

// TestMemoryOfResponsesIsLimited has room for the reading of one answer, and not
// for that of another while the first is held.
func TestMemoryOfResponsesIsLimited(t *testing.T) {
	f := &fleet{clusters: map[string]Session{"c1": newTestAgent(t, newFakeCluster().serve), "c2": newTestAgent(t, newFakeCluster().serve)}}
	room := int64(decodeCost*len(podList) + 2*itemOverhead)
	cases := map[string]Limits{"of all users": {ViewHeldBytes: room}, "of one user": {ViewHeldBytesPerUser: room}}
	for name, limits := range cases {
		t.Run(name, func(t *testing.T) {
			s := start(t, f, allowAll, limits)
			for range 3 {
				if _, failure := s.view(t, "alice", "c1", podsIn("a")); failure != nil {
					t.Fatalf("one answer: %+v; what was held is not given back", failure)
				}
			}
			question := podsIn("a")
			question.ClusterSelector = &metav1.LabelSelector{}
			v, failure := s.view(t, "alice", "c1", question)
			if failure != nil {
				t.Fatal(failure.Message)
			}
			if v.Status.Summary.Failed == 0 || !v.Status.Summary.Partial {
				t.Fatalf("two answers: %+v, want that one does not fit", v.Status.Summary)
			}
			for _, c := range v.Status.Clusters {
				if c.Error != nil && (c.Error.Code != http.StatusTooManyRequests || !strings.Contains(c.Error.Message, "try again")) {
					t.Errorf("%s: %+v, want 429", c.Cluster, c.Error)
				}
			}
		})
	}
}

func TestProxyRequestsPerUserAreLimited(t *testing.T) {
	leave := make(chan struct{})
	sp := newFakeCluster()
	a := newTestAgent(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			sp.serve(w, r)
			return
		}
		_, _ = io.WriteString(w, "event\n")
		_ = http.NewResponseController(w).Flush()
		<-leave
	})
	s := start(t, &fleet{clusters: map[string]Session{"c1": a, "c2": a}}, allowAll, Limits{ProxyRequests: 2, ProxyRequestsPerUser: 1})
	watch := func(user, cluster string) *http.Response {
		return s.do(t, http.MethodGet, livePath+"/clusters/"+cluster+"/proxy/api/v1/pods?watch=1", user, nil)
	}
	steps := []struct {
		reason, user, cluster string
		want                  int
	}{
		{"the first is carried", "alice", "c1", 200},
		{"one user has one", "alice", "c1", 429},
		{"each cluster is counted apart", "alice", "c2", 200},
		{"another user has one too", "bob", "c1", 200},
		{"the cluster has two", "carol", "c1", 429},
	}
	var held []*http.Response
	for _, step := range steps {
		res := watch(step.user, step.cluster)
		if res.StatusCode != step.want || step.want == 429 && res.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s at %s is answered %d, want %d", step.reason, step.user, step.cluster, res.StatusCode, step.want)
		}
		held = append(held, res)
	}
	_, br := s.dial(t, upgradeRequest("alice", "/exec", ""))
	if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("an upgrade beyond the limit: %v, %v; want 429", res, err)
	} else {
		_ = res.Body.Close()
	}
	if _, failure := s.view(t, "carol", "c1", podsIn("a")); failure != nil {
		t.Errorf("a view of a cluster that is taken: %+v, want an answer", failure)
	}
	close(leave)
	for _, res := range held {
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// TestServiceAccountsOfNamespaceShareLimit, however many somebody has made there.
func TestServiceAccountsOfNamespaceShareLimit(t *testing.T) {
	const account = "system:serviceaccount:team-a:"
	r := newRequestLimiter(Limits{ProxyRequests: 10, ProxyRequestsPerUser: 1}, nil)
	views := newViewStorage(nil, nil, nil, nil, Limits{ViewsInFlight: 10, ViewsPerUser: 1, ViewHeldBytes: 10, ViewHeldBytesPerUser: 1}, nil)
	as := func(name string) context.Context {
		return request.WithUser(t.Context(), &user.DefaultInfo{Name: name})
	}
	if _, err := r.acquire("c1", account+"one"); err != nil {
		t.Fatal(err)
	}
	first, err := views.startRequest(as(account+"one"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.reserveMemory("c1").callerAccount.Grow(1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.acquire("c1", account+"two"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a request of another one: got %v, want 429", err)
	}
	if _, err := views.startRequest(as(account+"two"), "c1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a view of another one: got %v, want 429", err)
	}
	for _, other := range []string{"system:serviceaccount:team-b:one", "jane"} {
		if _, err := r.acquire("c1", other); err != nil {
			t.Errorf("a request of %s: %v", other, err)
		}
		turn, err := views.startRequest(as(other), "c1")
		if err != nil {
			t.Errorf("a view of %s: %v", other, err)
		} else if err := turn.reserveMemory("c1").callerAccount.Grow(1); err != nil {
			t.Errorf("memory of %s: %v", other, err)
		}
	}
	if second := (&viewRequest{views: views, caller: impersonation.Principal{User: account + "two"}}); second.reserveMemory("c1").callerAccount.Grow(1) == nil {
		t.Error("another one has memory of its own")
	}
	first.close()
}

func TestRequestLimiterReleasesSlots(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		limits Limits
		second string
	}{
		"of a user":    {reason: "a user has one", limits: Limits{ProxyRequests: 2, ProxyRequestsPerUser: 1}, second: "alice"},
		"of a cluster": {reason: "a cluster has one", limits: Limits{ProxyRequests: 1, ProxyRequestsPerUser: 1}, second: "bob"},
		"of a session": {reason: "all doors together have one", limits: Limits{ProxyRequests: 2, ProxyRequestsPerUser: 1}, second: "bob"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequestLimiter(tc.limits, quota.NewSlots(10, 1))
			for range 3 {
				leave, err := r.acquire("c1", "alice")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.acquire("c1", tc.second); !apierrors.IsTooManyRequests(err) {
					t.Fatalf("%s: a second request: got %v, want 429", tc.reason, err)
				}
				leave()
			}
		})
	}
}

func TestPodStreamsShareRequestLimit(t *testing.T) {
	streams := quota.NewSlots(10, 1)
	r := newRequestLimiter(Limits{ProxyRequests: 2, ProxyRequestsPerUser: 2}, streams)
	if !streams.Take("c1", 1) {
		t.Fatal("the first stream is refused")
	}
	if _, err := r.acquire("c1", "alice"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a pod has the session's last stream: got %v, want 429", err)
	}
	streams.Give("c1", 1)
	leave, err := r.acquire("c1", "alice")
	if err != nil {
		t.Fatalf("the stream of the pod has ended: %v", err)
	}
	leave()
}
