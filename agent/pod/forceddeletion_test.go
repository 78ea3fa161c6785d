// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestDecideForcedDeletion(t *testing.T) {
	const uid, successor = "hub-1", "hub-2"
	cases := map[string]struct {
		reason string
		want   *desiredState
		live   liveState
		act    action
	}{
		"another has its name": {reason: "that one does not wait for a grace", want: &desiredState{uid: successor}, act: actDeleteForced},
		"another has its name, and it ends with its own grace": {
			reason: "an hour of a database is shortened",
			want:   &desiredState{uid: successor}, live: liveState{deleting: true, grace: 3600}, act: actDeleteForced,
		},
		"another has its name, and it ends as it was told": {
			reason: "a second deletion changes nothing",
			want:   &desiredState{uid: successor}, live: liveState{deleting: true, grace: leastGrace}, act: actNone,
		},
		"nobody has its name": {reason: "its end is not waited for, whatever else the hub has yet to tell", act: actDeleteForced},
		"it is told of as it was before": {
			reason: "that it is gone is told in a moment", want: &desiredState{uid: uid}, act: actNone,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.live.hubUID = uid
			got := decide(decisionInput{podsListed: true, desired: tc.want, objectsKnown: true, live: &tc.live, applied: true, forceDeleted: true})
			if got != tc.act {
				t.Errorf("reason: %s: got %s, want %s", tc.reason, got, tc.act)
			}
		})
	}
}

// deletions serves an API server that takes each deletion, and keeps the last.
func deletions(t *testing.T, e *Engine) *metav1.DeleteOptions {
	t.Helper()
	sent := &metav1.DeleteOptions{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*sent = metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, sent); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	t.Cleanup(server.Close)
	spoke, err := newSpokeClient(&rest.Config{Host: server.URL}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(spoke.close)
	e.spoke = spoke
	return sent
}

// TestForcedDeletionSurvivesReuseOfTheName: of a pod that is deleted by force the agent is
// told by UID, for what it hears under its name may be of the next one already.
func TestForcedDeletionSurvivesReuseOfTheName(t *testing.T) {
	second, tenMinutes := int64(leastGrace), int64(600)
	cases := map[string]struct {
		reason string
		// then is what the agent hears of the name.
		then   func(*testing.T, *Engine)
		forced types.UID
		// ends is the grace with which the pod ends already, if it does.
		ends *int64
		want *int64
	}{
		"a successor": {
			reason: "it is Pending until the one before has ended",
			then:   func(t *testing.T, e *Engine) { tellPod(t, e, "hub-2") }, forced: "hub-1", want: &second,
		},
		"no successor": {
			reason: "the documents promise a second",
			then:   func(_ *testing.T, e *Engine) { e.handlePodDeleted("shop/web") }, forced: "hub-1", want: &second,
		},
		"a pod that ends already": {
			reason: "a grace that runs is shortened",
			then:   func(t *testing.T, e *Engine) { tellPod(t, e, "hub-2") }, forced: "hub-1", ends: &tenMinutes, want: &second,
		},
		"another pod of that name": {
			reason: "what was said of one is not said of the next",
			then:   func(_ *testing.T, e *Engine) { e.handlePodDeleted("shop/web") }, forced: "hub-0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := idle(t)
			sent := deletions(t, e)
			e.observePodList(nil, "1")
			e.handlePodsSynced()
			tellPod(t, e, "hub-1")
			pod := inSpoke(t, "spoke-1", "hub-1", "5")
			if tc.ends != nil {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1_700_000_000, 0)}, tc.ends
			}
			e.observePod(pod)
			e.handleForcedDeletion(resource.Resource{Key: "shop/web/" + string(tc.forced), UID: string(tc.forced)})
			tc.then(t, e)
			if err := e.reconcile(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			if p := sent.Preconditions; p == nil || p.UID == nil || *p.UID != "spoke-1" {
				t.Fatalf("reason: %s: deletion is of %+v", tc.reason, sent)
			}
			if diff := cmp.Diff(tc.want, sent.GracePeriodSeconds); diff != "" {
				t.Errorf("reason: %s: grace (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestForcedDeletionsAreForgottenWithTheHub(t *testing.T) {
	e := idle(t)
	key := wire.PodTokenKey{PodKey: wire.PodKey{Namespace: "shop", Name: "web"}, UID: "hub-1"}.String()
	e.handleForcedDeletion(resource.Resource{Key: key, UID: "hub-1"})
	e.handleForcedDeletion(resource.Resource{Key: "web", UID: "hub-1"})
	e.handleForcedDeletionDeleted("web")
	if len(e.forcedDeletions) != 1 {
		t.Errorf("forced: %v, want one", e.forcedDeletions)
	}
	e.handleForcedDeletionDeleted(key)
	if len(e.forcedDeletions) > 0 {
		t.Errorf("kept after the hub has withdrawn it: %v", e.forcedDeletions)
	}
}
