// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// appliedContent is the hash of what a test's work has applied.
var appliedContent = [32]byte{1}

func TestEndedObjectIsNotRecreatedAfterRestart(t *testing.T) {
	e, w, at := anchored(t, "A")
	e.attachAnchor(w, w.anchor)
	key := w.key.String()
	e.inventory.BeginWrite(at.ObjectID, key, time.Now())
	s := &inventory.ObservedObject{UID: "u", ResourceVersion: "10", Owners: []types.UID{w.anchor.UID}, HasEnded: true}
	e.requeue(e.inventory.RecordApply(at.ObjectID, key, appliedContent, s, inventory.DriftByFields))
	said := e.supersededObjects(w)
	if len(said) != 1 {
		t.Fatalf("its anchor says %v", said)
	}
	next, w, at := anchored(t, "A")
	w.anchor.Superseded = said
	next.attachAnchor(w, w.anchor)
	sink := &inventory.Sink{Inventory: next.inventory, Requeue: next.requeue, Scope: inventory.Scope{GroupVersionResource: at.GVR(), Namespace: at.Namespace}}
	sink.StartSync()
	sink.FinishSync("20")
	if what, _ := next.inventory.NextAction(at.ObjectID, key, appliedContent, time.Now()); what != inventory.ActionNone {
		t.Errorf("of the same manifest it needs %d", what)
	}
	if !next.inventory.HasEnded(at.ObjectID) {
		t.Error("its status does not say that it has ended")
	}
	if what, _ := next.inventory.NextAction(at.ObjectID, key, [32]byte{2}, time.Now()); what != inventory.ActionApply {
		t.Errorf("of another manifest it needs %d", what)
	}
}

// A work that orphans its object moves to another hash of its hub.
func TestOrphanedObjectHasNoOwnerAfterHubMoved(t *testing.T) {
	tests := map[string]struct {
		reason string
		moves  func(e *Engine, w *work)
	}{
		"while the agent runs": {reason: "the work held the old anchor", moves: func(e *Engine, w *work) { e.releaseAnchor(w, &plan.Spec{HubHash: "B"}) }},
		"before it started":    {reason: "the old anchor is read", moves: func(e *Engine, w *work) { e.bindAnchor(w.policy, orphanKey("A-w"), "A-w", w.anchor) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e, w, at := anchored(t, "A")
			e.inventory.AddClaim(at, w.key.String(), w.anchor.UID)
			e.requeue(e.inventory.SetDesired(at.ObjectID, w.key.String(), inventory.DesiredState{ContentHash: appliedContent}))
			tc.moves(e, w)
			e.inventory.AddClaim(at, w.key.String(), "anchor-B")
			e.requeue(e.inventory.SetDesired(at.ObjectID, w.key.String(), inventory.DesiredState{ContentHash: appliedContent}))
			if got := e.inventory.BeginWrite(at.ObjectID, w.key.String(), time.Now()); len(got) != 0 {
				t.Errorf("%s, and an apply makes the orphaned object belong to %v", tc.reason, got)
			}
		})
	}
}

// anchored is an engine with a work under a hash of its hub, whose anchor lists one
// object. It reaches no API server.
func anchored(t *testing.T, hash string) (*Engine, *work, manifest.Target) {
	t.Helper()
	e := &Engine{
		cfg: Config{EvictionGrace: time.Hour}, queue: workqueue.NewTypedDelayingQueue[string](), reports: workqueue.NewTyped[string](), reporter: resource.NewSource(wire.KindWorkStatus),
		records: record.NewQueue(), works: map[string]*work{}, anchors: map[string]*work{}, unservedKinds: map[string]map[string]struct{}{},
	}
	t.Cleanup(e.queue.ShutDown)
	t.Cleanup(e.reports.ShutDown)
	var err error
	if e.metrics, err = newMetrics(nil, e.countByState); err != nil {
		t.Fatal(err)
	}
	e.inventory = inventory.New(func(inventory.Scope) func() { return func() {} })
	at := manifest.Target{ObjectID: manifest.ObjectID{Resource: "configmaps", Namespace: "n", Name: "o"}, Version: "v1", Kind: "ConfigMap"}
	w := e.bindAnchorName(ManifestWork(), wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: spokeName, Name: "w"}, hash+"-w")
	w.anchor = &record.Anchor{UID: types.UID("anchor-" + hash), Objects: map[manifest.ObjectID]record.Object{at.ObjectID: {Target: at, UID: "u"}}}
	return e, w, at
}

// A hub that goes back to its first hash has the anchor of that hash again: it is
// nobody's only in between.
func TestAnchorTakenOverAgainIsNotEvicted(t *testing.T) {
	e, w, at := anchored(t, "A")
	e.inventory.AddClaim(at, w.key.String(), w.anchor.UID)
	e.releaseAnchor(w, &plan.Spec{HubHash: "B"})
	nobodys := e.lookup(orphanKey("A-w").String())
	nobodys.anchor.EvictionStart = time.Now()
	if wait, err := e.evict(t.Context(), nobodys); wait == 0 || err != nil {
		t.Fatalf("in its grace: wait %s, %v", wait, err)
	}
	queued(e.queue)
	e.releaseAnchor(w, &plan.Spec{HubHash: "A"})
	if diff := cmp.Diff([]string{nobodys.key.String()}, queued(e.queue)); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
	e.inventory.AddClaim(at, w.key.String(), "anchor-A")
	if wait, err := e.evict(t.Context(), nobodys); wait != 0 || err != nil {
		t.Errorf("it still waits %s for its eviction, %v", wait, err)
	}
	if nobodys.anchor != nil || e.lookup(nobodys.key.String()) != nil || e.anchors[ManifestWork().Dialect+"/A-w"] != w {
		t.Error("the anchor of a work that is wanted is held by what is evicted")
	}
	for _, o := range e.inventory.BeginWrite(at.ObjectID, w.key.String(), time.Now()) {
		if o.Work != w.key.String() {
			t.Errorf("the object belongs to %s, too", o.Work)
		}
	}
}

// Anchors are listed anew after a failure, those that were read before among them.
func TestAnchorReadTwiceStaysWithItsWork(t *testing.T) {
	e, w, _ := anchored(t, "A")
	e.cfg.Cluster = w.key.Namespace
	if got := e.anchorWorkKey(w.policy, w.key, "A-w"); got != w.key {
		t.Errorf("it stands for %s, want %s", got, w.key)
	}
	if got := e.anchorWorkKey(w.policy, w.key, "B-w"); got != orphanKey("B-w") {
		t.Errorf("a second one stands for %s", got)
	}
}

// What a copy of a work orphans, or only reads, its anchor does not own: before the work
// itself runs again another one may write the object, and repeat references.
func TestRestoredOwnershipFollowsSpecCache(t *testing.T) {
	option := func(u workv1.UpdateStrategyType) []workv1.ManifestConfigOption {
		return []workv1.ManifestConfigOption{{
			ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "n", Name: "o"}, UpdateStrategy: strategyOf(u),
		}}
	}
	cases := map[string]struct {
		reason string
		spec   workv1.ManifestWorkSpec
		owns   bool
	}{
		"it keeps it":   {reason: "an apply withdraws what it does not repeat", owns: true},
		"it orphans it": {reason: "the reference was removed, and would come back", spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}}},
		"it reads it":   {reason: "there never was a reference", spec: workv1.ManifestWorkSpec{ManifestConfigs: option(workv1.UpdateStrategyTypeReadOnly)}},
		"it creates it": {reason: "it is deleted with the work", spec: workv1.ManifestWorkSpec{ManifestConfigs: option(workv1.UpdateStrategyTypeCreateOnly)}, owns: true},
		"it orphans one": {reason: "another object", spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{
			PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
			SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: "n", Name: "other"}}},
		}}, owns: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, w, at := anchored(t, "A")
			e.cfg.Cluster, e.policies = spokeName, map[string]Policy{wire.DialectManifestWork: ManifestWork()}
			e.attachAnchor(w, w.anchor)
			body, err := json.Marshal(wire.Work{Generation: 1, HubHash: hubHashOne, Spec: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			key := w.key.String()
			if err := e.setSpec(resource.Resource{Key: key, UID: "uid", Generation: 1, Body: body}, true); err != nil {
				t.Fatal(err)
			}
			e.restoreOwnership(key)
			e.inventory.AddClaim(at, "other", "anchor-other")
			want := []inventory.Owner{{Work: key, Anchor: w.anchor.UID}, {Work: "other", Anchor: "anchor-other"}}
			if !tc.owns {
				want = want[1:]
			}
			got := e.inventory.BeginWrite(at.ObjectID, "other", time.Now())
			slices.SortFunc(got, func(a, b inventory.Owner) int { return strings.Compare(string(a.Anchor), string(b.Anchor)) })
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(inventory.Owner{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
