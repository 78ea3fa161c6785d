// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/spokelet/spokelet/api/wire"
)

// reviews are the questions that were asked about rights.
func (r *rig) reviews() []string {
	var of []string
	for _, q := range r.server.seen() {
		if question, ok := strings.CutPrefix(q, "review "); ok {
			of = append(of, question)
		}
	}
	return of
}

func TestViewFollowsRights(t *testing.T) {
	runSynctest(t, func(r *rig) {
		var denied atomic.Bool
		r.server.may = func(string) bool { return !denied.Load() }
		r.server.set("configmaps", "shop", "a", nil)
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "while it is allowed")
		r.sleep(time.Minute)
		denied.Store(true)
		r.server.set("rolebindings", "shop", "readers", nil)
		got := r.onlyAnswer(key, "the right is gone")
		want := &wire.Refusal{Cause: wire.CauseRequest, Status: metav1.StatusReasonForbidden, Message: `configmaps is forbidden: User "alice" cannot watch`}
		if diff := cmp.Diff(want, got.Refusal); diff != "" || got.at != time.Minute {
			t.Errorf("after %s, refusal (-want +got):\n%s", got.at-time.Minute, diff)
		}
		if open := r.server.watches("configmaps"); open != 0 {
			t.Errorf("%d watches are open, want none", open)
		}
		r.sleep(20 * time.Second)
		r.server.seen()
		r.sleep(time.Minute)
		if requests := r.server.seen(); len(requests) != 0 {
			t.Errorf("requests of a view that is refused: %q", requests)
		}
		// The API server may take a moment to see what it has sent.
		r.server.set("clusterrolebindings", "", "readers", nil)
		r.sleep(5 * time.Second)
		r.expectNoAnswer(key, "caches of the API server have not seen the change")
		denied.Store(false)
		r.sleep(5 * time.Second)
		if got := r.onlyAnswer(key, "they have").names(t); !cmp.Equal(got, []string{"shop/a"}) {
			t.Errorf("%v, want the list again", got)
		}
	})
}

func TestReviewDoesNotDelayFirstAnswer(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.sleep(time.Minute)
		r.server.configure(func(s *server) {
			s.slow = 100 * time.Millisecond
			s.may = func(question string) bool { return !strings.HasPrefix(question, "alice ") }
		})
		key := r.ask(configMaps("shop"), 1)
		r.server.set("rolebindings", "shop", "readers", nil)
		r.sleep(200 * time.Millisecond)
		if got := r.onlyAnswer(key, "the API server's own").Refusal; got == nil || got.Status != metav1.StatusReasonForbidden {
			t.Errorf("refusal is %+v", got)
		}
	})
}

func TestEqualViewsShareReview(t *testing.T) {
	runSynctest(t, func(r *rig) {
		labelled := configMaps("shop")
		labelled.LabelSelector = "app=web"
		named := configMaps("shop")
		named.FieldSelector = "metadata.name=b"
		others := configMaps("shop")
		others.Requester.User = "bob"
		everywhere := wire.View{Target: wire.Target{Resource: "configmaps"}}
		refusedByDoor := wire.View{Requester: wire.Requester{User: "mallory"}, Target: wire.Target{Resource: "configmaps"}}
		for _, v := range []wire.View{
			configMaps("shop"), labelled, configMap("shop", "a"), named, others, configMaps("other"), everywhere, refusedByDoor,
			{Target: wire.Target{Resource: "widgets"}}, {Target: wire.Target{Resource: "nodes", Namespace: "ignored"}},
		} {
			r.ask(v, 1)
		}
		r.sleep(time.Minute)
		cases := []struct {
			reason   string
			resource string
			where    string
			want     []string
		}{
			{
				reason: "a role counts in its namespace alone", resource: "roles", where: "shop",
				want: []string{"alice configmaps shop ", "alice configmaps shop a", "alice configmaps shop b", "bob configmaps shop "},
			},
			{
				reason: "a cluster role counts everywhere", resource: "clusterroles",
				want: []string{
					"alice configmaps  ", "alice configmaps other ", "alice configmaps shop ", "alice configmaps shop a", "alice configmaps shop b",
					"alice nodes  ", "bob configmaps shop ",
				},
			},
		}
		for _, tc := range cases {
			r.reviews()
			r.server.set(tc.resource, tc.where, "x", nil)
			r.sleep(0)
			var want []string
			for _, q := range tc.want {
				who, what, _ := strings.Cut(q, " ")
				want = append(want, who+" list "+what, who+" watch "+what)
			}
			slices.Sort(want)
			got := r.reviews()
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: reviews (-want +got):\n%s", tc.reason, diff)
			}
			r.sleep(time.Minute)
			if got := r.reviews(); len(got) != 2*len(want) {
				t.Errorf("%s: %d reviews later, want each twice", tc.reason, len(got))
			}
		}
	})
}

func TestFailedReviewChangesNothing(t *testing.T) {
	runSynctest(t, func(r *rig) {
		key := r.ask(configMaps("shop"), 1)
		r.onlyAnswer(key, "the initial state")
		r.sleep(time.Minute)
		allowed, err := r.engine.isAllowed(t.Context(), accessRequest{user: "alice", groups: []string{user.AllAuthenticated}})
		if err != nil || !allowed {
			t.Fatalf("allowed is %t: %v", allowed, err)
		}
		r.server.configure(func(s *server) { s.noReviews = true })
		r.server.set("clusterroles", "", "x", nil)
		r.sleep(time.Minute)
		r.expectNoAnswer(key, "nobody says that the right is gone")
		if _, err := r.engine.isAllowed(t.Context(), accessRequest{user: "alice"}); !errors.Is(err, errDown) {
			t.Errorf("%v, want why", err)
		}
	})
}

func TestOtherRefusalsAreNotReviewed(t *testing.T) {
	runSynctest(t, func(r *rig) {
		r.server.answer["configmaps"] = status(400, metav1.StatusReasonBadRequest, "bad selector")
		r.onlyAnswer(r.ask(configMaps("shop"), 1), "a bad selector")
		r.sleep(time.Minute)
		r.server.seen()
		r.server.set("clusterroles", "", "x", nil)
		r.sleep(time.Minute)
		if got := r.server.seen(); len(got) != 0 {
			t.Errorf("requests %q, want none: no right makes the selector valid", got)
		}
	})
}
