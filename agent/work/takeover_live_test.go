// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// as runs an engine under an agent id, with a mark of its own, as every process
// without a tunnel has one.
func (c *testCluster) as(h *testHub, id, hash string) *testAgent {
	return c.startForOCM(h, func(cfg *Config) { cfg.AgentID, cfg.HubID, cfg.HubHash = id, id, hash })
}

// A new Klusterlet of the same hub has a new id.
func TestAgentOfSameHubTakesOverAnchors(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	former := c.as(h, "former-"+c.namespace, hubHashOne)
	kept, deleted, unasked := c.name("kept"), c.name("deleted"), c.name("unasked")
	h.ask(kept, 1, wire.Work{}, c.configMap("kept", "k", "v"), c.configMap("pruned"))
	h.ask(deleted, 1, wire.Work{}, c.configMap("deleted"))
	h.ask(unasked, 1, wire.Work{}, c.configMap("unasked"))
	for name, n := range map[string]int{kept: 2, deleted: 1, unasked: 1} {
		c.eventually(name+" is recorded", func() bool {
			a := c.applied(hubHashOne + "-" + name)
			return a != nil && len(a.Status.AppliedResources) == n
		})
	}
	former.stop()
	missed := []byte(`{"status":{"evictionStartTime":"2026-01-01T00:00:00Z"}}`)
	anchor := hubHashOne + "-" + kept
	if _, err := c.dynamic.Resource(ManifestWork().Anchor.Resource).
		Patch(t.Context(), anchor, types.MergePatchType, missed, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	before, object := c.applied(anchor), c.get("kept")

	h = newHub(t)
	id := "new-" + c.namespace
	c.as(h, id, hubHashOne)
	h.ask(deleted, 1, wire.Work{Deleting: true})
	h.ask(kept, 2, wire.Work{}, c.configMap("kept", "k", "v"))
	h.says(c, kept, 2, "Applied", metav1.ConditionTrue)
	if at := c.applied(anchor).Status.EvictionStartTime; at != nil {
		t.Errorf("what is asked for is to be evicted, since %s", at)
	}
	c.eventually("what the work names no more is removed", func() bool { return c.get("pruned") == nil })
	if a := c.applied(anchor); a.UID != before.UID || a.Spec.AgentID != id {
		t.Errorf("anchor %s of %q, want %s of %q", a.UID, a.Spec.AgentID, before.UID, id)
	}
	if now := c.get("kept"); now.UID != object.UID || now.ResourceVersion != object.ResourceVersion {
		t.Error("an object that was as it should be was written")
	}
	c.eventually("finalized", func() bool { return h.said(deleted).Finalized })
	if c.get("deleted") != nil || c.applied(hubHashOne+"-"+deleted) != nil {
		t.Error("something is left of a finalized work")
	}
	if a := c.applied(hubHashOne + "-" + unasked); a == nil || a.Spec.AgentID == id || a.Status.EvictionStartTime != nil || c.get("unasked") == nil {
		t.Errorf("what nobody asked for was touched: %+v", a)
	}
}

// failing has the nth request of a kind fail.
func failing(nth int32, those func(*http.Request) bool) func(*Config) {
	var n atomic.Int32
	return func(cfg *Config) {
		before := cfg.REST.WrapTransport
		cfg.REST.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			if before != nil {
				next = before(next)
			}
			return roundTripper{next, func(req *http.Request) (*http.Response, error) {
				if those(req) && n.Add(1) == nth {
					return nil, errBoom
				}
				return next.RoundTrip(req)
			}}
		}
	}
}

// An API server that does not answer once leaves no anchor half taken over.
func TestFailedTakeoverIsRetried(t *testing.T) {
	patches := func(req *http.Request) bool {
		if req.Method != http.MethodPatch || !strings.Contains(req.URL.Path, "/appliedmanifestworks/") {
			return false
		}
		body, err := req.GetBody()
		if err != nil {
			t.Error(err)
			return true
		}
		if text, err := io.ReadAll(body); err != nil || strings.Contains(string(text), "appliedResources") && !strings.Contains(string(text), `"kept"`) {
			t.Errorf("what is there leaves the list: %s, %v", text, err)
		}
		return true
	}
	for label, nth := range map[string]int32{"its mark": 1, "what is about to be applied": 2, "its list": 3} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			former := c.as(h, "former-"+c.namespace, hubHashOne)
			work := c.name("w")
			anchor := hubHashOne + "-" + work
			h.ask(work, 1, wire.Work{}, c.configMap("kept"))
			c.eventually("it is recorded", func() bool { a := c.applied(anchor); return a != nil && len(a.Status.AppliedResources) == 1 })
			former.stop()
			listed := c.applied(anchor).Status.AppliedResources

			h = newHub(t)
			id := "new-" + c.namespace
			c.startForOCM(h, failing(nth, patches), func(cfg *Config) { cfg.AgentID, cfg.HubID, cfg.HubHash = id, id, hubHashOne })
			h.ask(work, 2, wire.Work{}, c.configMap("kept"), c.configMap("added"))
			h.says(c, work, 2, "Applied", metav1.ConditionTrue)
			c.eventually("what was added is listed", func() bool { return len(c.applied(anchor).Status.AppliedResources) == 2 })
			a := c.applied(anchor)
			if a.Spec.AgentID != id || a.Annotations[record.HubLabel] != id || !slices.Contains(a.Finalizers, ManifestWork().Anchor.Finalizer) {
				t.Errorf("the anchor is %+v, want one of agent %q", a.ObjectMeta, id)
			}
			if got := a.Status.AppliedResources; got[1] != listed[0] {
				t.Errorf("listed are %+v, before %+v", got, listed)
			}
		})
	}
}

func TestObjectsOfAnotherHubAreNotTakenOver(t *testing.T) {
	tests := map[string]struct {
		reason string
		// own is the hash that the agent knows by itself, theirs the anchor's.
		own, theirs string
	}{
		"a hash that the hub says": {reason: "it may be another's", theirs: hubHashOne},
		"another hash":             {reason: "the name alone says nothing", own: hubHashOne, theirs: hubHashTwo},
		"no hash":                  {reason: "nobody knows whose it is", own: hubHashOne},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			work := c.name("w")
			made := c.strayAnchor(hubHashOne, workv1.AppliedManifestWorkSpec{HubHash: tc.theirs, AgentID: "former", ManifestWorkName: work})
			c.as(h, "new-"+c.namespace, tc.own)
			h.ask(work, 1, wire.Work{}, c.configMap("cm"))
			s := h.says(c, work, 1, "Applied", metav1.ConditionFalse)
			if want := "Failed to apply manifest: AppliedManifestWork " + made.GetName() + ": " + record.ErrForeign.Error(); message(s, 0) != want {
				t.Errorf("%s: message %q, want %q", tc.reason, message(s, 0), want)
			}
			h.ask(work, 1, wire.Work{Deleting: true})
			c.eventually("finalized", func() bool { return h.said(work).Finalized })
			if a := c.applied(made.GetName()); a == nil || a.UID != made.GetUID() || a.DeletionTimestamp != nil || c.get("cm") != nil {
				t.Errorf("%s: %+v", tc.reason, a)
			}
		})
	}
}
