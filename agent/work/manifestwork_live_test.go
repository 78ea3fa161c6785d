// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// hash of the hub that the tests play.
var hubHashOne, hubHashTwo = strings.Repeat("1f", 32), strings.Repeat("2e", 32)

func manifestKey(name string) string {
	return wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: spokeName, Name: name}.String()
}

// ask publishes a generation of a ManifestWork.
func (h *testHub) ask(name string, generation int64, w wire.Work, manifests ...string) {
	h.t.Helper()
	h.askAs("uid-"+name, name, generation, w, manifests...)
}

// askAs does so for a work of that UID.
func (h *testHub) askAs(uid, name string, generation int64, w wire.Work, manifests ...string) {
	h.t.Helper()
	w.Generation = generation
	if w.HubHash == "" {
		w.HubHash = hubHashOne
	}
	for _, m := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	body, err := json.Marshal(w)
	if err != nil {
		h.t.Fatal(err)
	}
	r := resource.Resource{Key: manifestKey(name), UID: uid, Generation: generation, Body: body}
	if err := h.sync.Source(spokeName, wire.KindWork).Put(r); err != nil {
		h.t.Fatal(err)
	}
}

func (h *testHub) said(name string) reportedStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[manifestKey(name)]
}

// says waits until a condition of a ManifestWork has a status for a generation.
func (h *testHub) says(c *testCluster, name string, generation int64, condition string, status metav1.ConditionStatus) reportedStatus {
	c.t.Helper()
	var s reportedStatus
	defer func() {
		if c.t.Failed() {
			c.t.Logf("status of %s: %+v", name, s)
		}
	}()
	c.eventually(name+" "+condition+" "+string(status), func() bool {
		s = h.said(name)
		found := meta.FindStatusCondition(s.Conditions, condition)
		return found != nil && found.Status == status && found.ObservedGeneration == generation
	})
	return s
}

// startForOCM runs an engine that answers for the ManifestWorks of the cluster.
func (c *testCluster) startForOCM(h *testHub, change ...func(*Config)) *testAgent {
	return c.start(h, append([]func(*Config){func(cfg *Config) { cfg.Cluster = spokeName }}, change...)...)
}

// applied reads an AppliedManifestWork, nil when there is none.
func (c *testCluster) applied(name string) *workv1.AppliedManifestWork {
	c.t.Helper()
	u, err := c.dynamic.Resource(ManifestWork().Anchor.Resource).Get(contextOf(c.t), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	var a workv1.AppliedManifestWork
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a); err != nil {
		c.t.Fatal(err)
	}
	return &a
}

// strayAnchor makes the anchor of a work of the hub with that hash, as another agent
// does.
func (c *testCluster) strayAnchor(hash string, spec workv1.AppliedManifestWorkSpec) *unstructured.Unstructured {
	c.t.Helper()
	anchors := c.dynamic.Resource(ManifestWork().Anchor.Resource)
	made, err := anchors.Create(c.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork", "metadata": map[string]any{"name": hash + "-" + spec.ManifestWorkName},
		"spec": map[string]any{"hubHash": spec.HubHash, "agentID": spec.AgentID, "manifestWorkName": spec.ManifestWorkName},
	}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = anchors.Delete(contextOf(c.t), made.GetName(), metav1.DeleteOptions{}) })
	return made
}

func (c *testCluster) get(name string) *corev1.ConfigMap {
	cm, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(contextOf(c.t), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return cm
}

func (c *testCluster) patch(name, patch string) {
	c.t.Helper()
	_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Patch(contextOf(c.t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
}

// option configures the ConfigMaps of the namespace.
func (c *testCluster) option(o workv1.ManifestConfigOption) workv1.ManifestConfigOption {
	o.ResourceIdentifier = workv1.ResourceIdentifier{Resource: "configmaps", Namespace: c.namespace, Name: "*"}
	return o
}

func strategyOf(t workv1.UpdateStrategyType) *workv1.UpdateStrategy {
	return &workv1.UpdateStrategy{Type: t}
}

func TestManifestWorkIsAppliedRepairedAndDeleted(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	h.ask(work, 1, wire.Work{Labels: map[string]string{"team": "a"}}, c.configMap("one", "k", "v"), c.configMap("two", "k", "v"))
	s := h.says(c, work, 1, "Available", metav1.ConditionTrue)
	if diff := cmp.Diff([]string{"Applied=True/AppliedManifestWorkComplete@1", "Available=True/ResourcesAvailable@1"}, text(s.Conditions)); diff != "" {
		t.Errorf("work (-want +got):\n%s", diff)
	}
	want := []string{"Applied=True/AppliedManifestComplete@1", "Available=True/ResourceAvailable@0", "StatusFeedbackSynced=True/NoStatusFeedbackSynced@0"}
	c.eventually("all of a manifest is told", func() bool {
		m := h.said(work).Manifests
		return len(m) == 2 && cmp.Equal(want, text(m[0].Conditions)) && cmp.Equal(want, text(m[1].Conditions))
	})
	anchor := hubHashOne + "-" + work
	c.eventually("applied resources are listed", func() bool { a := c.applied(anchor); return a != nil && len(a.Status.AppliedResources) == 2 })
	a := c.applied(anchor)
	if diff := cmp.Diff(workv1.AppliedManifestWorkSpec{HubHash: hubHashOne, AgentID: hubHashOne, ManifestWorkName: work}, a.Spec); diff != "" {
		t.Errorf("anchor (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "a"}, a.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	for _, m := range c.get("one").ManagedFields {
		if m.Manager != inventory.FieldManager {
			t.Errorf("field manager %q, want %q alone", m.Manager, inventory.FieldManager)
		}
	}

	c.patch("one", `{"data":{"k":"strayed"}}`)
	c.eventually("the change is taken back", func() bool { return c.get("one").Data["k"] == "v" })
	c.patch("one", `{"data":{"more":"x"},"metadata":{"labels":{"theirs":"stays"}}}`)
	c.eventually("data is replaced whole", func() bool { return len(c.get("one").Data) == 1 })
	if c.get("one").Labels["theirs"] != "stays" {
		t.Error("a label of somebody else was removed")
	}

	h.ask(work, 2, wire.Work{}, c.configMap("two", "k", "new"))
	h.says(c, work, 2, "Applied", metav1.ConditionTrue)
	c.eventually("what is no more asked for is removed", func() bool { return c.get("one") == nil && c.get("two").Data["k"] == "new" })

	h.ask(work, 2, wire.Work{Deleting: true})
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("two") != nil || c.applied(anchor) != nil {
		t.Error("something is left of a finalized work")
	}
}

func TestRulesFollowObjectEvents(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	w := wire.Work{Healthy: true}
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{c.option(workv1.ManifestConfigOption{
		UpdateStrategy: strategyOf(workv1.UpdateStrategyTypeCreateOnly),
		FeedbackRules:  []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "state", Path: ".data.state"}}}},
		ConditionRules: []workv1.ConditionRule{{
			Condition: "Applied", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"false"}, // nobody's to say
		}, {
			Condition: "Complete", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{`object.data.state == "done"`},
		}},
	})}
	work := c.name("w")
	h.ask(work, 1, w, c.configMap("cm", "state", "new"))
	state := func() string {
		m := h.said(work).Manifests
		if len(m) != 1 || len(m[0].StatusFeedbacks.Values) != 1 {
			return ""
		}
		return *m[0].StatusFeedbacks.Values[0].Value.String
	}
	c.eventually("feedback", func() bool { return state() == "new" })
	h.says(c, work, 1, "Complete", metav1.ConditionFalse)
	h.says(c, work, 1, "Healthy", metav1.ConditionTrue)
	c.patch("cm", `{"data":{"state":"busy"}}`)
	c.eventually("feedback", func() bool { return state() == "busy" })
	before := time.Now()
	c.patch("cm", `{"data":{"state":"done"}}`)
	if s := h.says(c, work, 1, "Complete", metav1.ConditionTrue); s.since.Before(before) || s.since.After(time.Now()) {
		t.Errorf("told of an event at %s, asked for after %s", s.since, before)
	}

	// A complete work ignores what is asked of it later.
	h.ask(work, 2, w, c.configMap("cm", "state", "new"), c.configMap("second"))
	h.ask(c.name("other"), 1, wire.Work{}, c.configMap("canary"))
	h.says(c, c.name("other"), 1, "Available", metav1.ConditionTrue)
	if c.get("second") != nil {
		t.Error("a complete work was applied")
	}
	c.patch("cm", `{"data":{"state":"busy"}}`)
	h.says(c, work, 2, "Complete", metav1.ConditionFalse)
	c.eventually("it goes on when it is complete no more", func() bool { return c.get("second") != nil })
}

func TestOrphanedObjectsAreKept(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	h.ask(work, 1, wire.Work{}, c.configMap("kept"), c.configMap("gone"))
	h.says(c, work, 1, "Available", metav1.ConditionTrue)
	w := wire.Work{}
	w.Spec.DeleteOption = &workv1.DeleteOption{
		PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
		SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: c.namespace, Name: "kept"}}},
	}
	h.ask(work, 2, w, c.configMap("kept"), c.configMap("gone"))
	h.says(c, work, 2, "Applied", metav1.ConditionTrue)
	c.ownedBy("kept")
	if len(c.get("gone").OwnerReferences) != 1 {
		t.Error("an object that no rule names has no owner")
	}
	w = wire.Work{Deleting: true, Spec: workv1.ManifestWorkSpec{DeleteOption: w.Spec.DeleteOption}}
	h.ask(work, 2, w)
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("kept") == nil || c.get("gone") != nil {
		t.Errorf("kept is %v, gone is %v", c.get("kept"), c.get("gone"))
	}
}

func TestConflictingWorksReportAndDoNotFight(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	a, b := c.name("a"), c.name("b")
	h.ask(a, 1, wire.Work{}, c.configMap("cm", "k", "a"))
	h.says(c, a, 1, "Available", metav1.ConditionTrue)
	h.ask(b, 1, wire.Work{}, c.configMap("cm", "k", "b"))
	for _, name := range []string{a, b} {
		h.says(c, name, 1, conditionShared, metav1.ConditionTrue)
	}
	owners := map[string]types.UID{a: c.applied(hubHashOne + "-" + a).UID, b: c.applied(hubHashOne + "-" + b).UID}
	c.ownedBy("cm", owners[a], owners[b])
	c.patch("cm", `{"data":{"k":"strayed"}}`)
	c.eventually("the last one wins", func() bool { return c.get("cm").Data["k"] == "b" })
	version := c.get("cm").ResourceVersion
	h.ask(c.name("other"), 1, wire.Work{}, c.configMap("canary"))
	h.says(c, c.name("other"), 1, "Available", metav1.ConditionTrue)
	if got := c.get("cm").ResourceVersion; got != version {
		t.Error("the object is written on and on")
	}
	h.ask(a, 2, wire.Work{}, c.configMap("cm", "k", "b"))
	c.eventually("they agree", func() bool {
		return meta.FindStatusCondition(h.said(a).Conditions, conditionShared) == nil && meta.FindStatusCondition(h.said(b).Conditions, conditionShared) == nil
	})
	h.ask(b, 1, wire.Work{Deleting: true})
	c.eventually("finalized", func() bool { return h.said(b).Finalized })
	c.ownedBy("cm", owners[a])
}

func TestUnknownAnchorsAreEvicted(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	strangers := map[string]string{c.name("mine"): "agent-" + c.namespace, c.name("theirs"): "somebody"}
	for name, agent := range strangers {
		c.strayAnchor(hubHashTwo, workv1.AppliedManifestWorkSpec{HubHash: hubHashTwo, AgentID: agent, ManifestWorkName: name})
	}
	c.startForOCM(h, func(cfg *Config) { cfg.AgentID, cfg.EvictionGrace = "agent-"+c.namespace, 50*time.Millisecond })
	anchor := func(name string) *workv1.AppliedManifestWork { return c.applied(hubHashTwo + "-" + name) }
	c.eventually("it is missed", func() bool {
		a := anchor(c.name("mine"))
		return a == nil || a.Status.EvictionStartTime != nil
	})
	c.eventually("it goes", func() bool { return anchor(c.name("mine")) == nil })
	if a := anchor(c.name("theirs")); a == nil || a.Status.EvictionStartTime != nil {
		t.Errorf("the anchor of another agent was touched: %+v", a)
	}
}

func TestDisabledEvictionIsCleared(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	agent := "agent-" + c.namespace
	name := c.strayAnchor(hubHashTwo, workv1.AppliedManifestWorkSpec{HubHash: hubHashTwo, AgentID: agent, ManifestWorkName: c.name("w")}).GetName()
	first := c.startForOCM(h, func(cfg *Config) { cfg.AgentID = agent })
	c.eventually("it is missed", func() bool { return c.applied(name).Status.EvictionStartTime != nil })
	first.stop()
	c.startForOCM(h, func(cfg *Config) { cfg.AgentID, cfg.EvictionGrace = agent, noEviction })
	c.eventually("it is missed no more", func() bool { return c.applied(name).Status.EvictionStartTime == nil })
}

// Another agent that has yet to hear of a new version may write what it knows over ours,
// under our name. Where that is in the second of our write, the API server records no
// difference.
func TestWriteByOurManagerIsRepaired(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	for i := range int64(5) {
		want := strconv.FormatInt(i, 10)
		h.ask(work, i+1, wire.Work{}, c.configMap("cm", "k", want))
		h.says(c, work, i+1, "Applied", metav1.ConditionTrue)
		live := c.get("cm")
		live.Data["k"] = "of before"
		if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Update(t.Context(), live, metav1.UpdateOptions{FieldManager: inventory.FieldManager}); err != nil {
			t.Fatal(err)
		}
		c.eventually("it is as it should be", func() bool { return c.get("cm").Data["k"] == want })
	}
}

// completes has a work be complete as soon as it is applied.
func (c *testCluster) completes() wire.Work {
	rules := []workv1.ConditionRule{{Condition: workv1.WorkComplete, Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"true"}}}
	return wire.Work{Spec: workv1.ManifestWorkSpec{ManifestConfigs: []workv1.ManifestConfigOption{c.option(workv1.ManifestConfigOption{ConditionRules: rules})}}}
}

// Nothing of a complete work is applied any more, and its record is exact.
func TestAnchorOfCompleteWorkIsUpdated(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	a := c.startForOCM(h)
	work := c.name("w")
	for !a.records.ShouldDelay() { // until a burst is on
	}
	h.ask(work, 1, c.completes(), c.configMap("cm"))
	h.says(c, work, 1, workv1.WorkComplete, metav1.ConditionTrue)
	c.eventually("what was applied is listed", func() bool { return len(c.applied(hubHashOne+"-"+work).Status.AppliedResources) == 1 })
	a.stop()
	missed := []byte(`{"status":{"evictionStartTime":"2026-01-01T00:00:00Z"}}`)
	if _, err := c.dynamic.Resource(ManifestWork().Anchor.Resource).
		Patch(t.Context(), hubHashOne+"-"+work, types.MergePatchType, missed, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.startForOCM(h)
	c.eventually("it is missed no more", func() bool { return c.applied(hubHashOne+"-"+work).Status.EvictionStartTime == nil })
}

// takesOver has a work that is taken over under another hub hash before what the first one
// left is evicted: an engine beside many others takes its time.
func (c *testCluster) takesOver(h *testHub, work string, spec workv1.ManifestWorkSpec) {
	c.t.Helper()
	evicting := func(grace time.Duration) func(*Config) {
		return func(cfg *Config) { cfg.AgentID, cfg.EvictionGrace = "agent-"+c.namespace, grace }
	}
	first := c.startForOCM(h, evicting(time.Hour))
	h.ask(work, 1, wire.Work{Spec: spec}, c.configMap("cm", "k", "v"))
	h.says(c, work, 1, "Available", metav1.ConditionTrue)
	uid := c.get("cm").UID
	h.ask(work, 2, wire.Work{HubHash: hubHashTwo, Spec: spec}, c.configMap("cm", "k", "v"))
	h.says(c, work, 2, "Available", metav1.ConditionTrue)
	first.stop()
	c.startForOCM(h, evicting(time.Millisecond))
	c.eventually("the old anchor is evicted", func() bool { return c.applied(hubHashOne+"-"+work) == nil })
	if c.get("cm").UID != uid {
		c.t.Error("the object was made anew")
	}
}

func TestNewHubHashTakesOverAndOldAnchorIsDeleted(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	work := c.name("w")
	c.takesOver(h, work, workv1.ManifestWorkSpec{})
	c.ownedBy("cm", c.applied(hubHashTwo+"-"+work).UID)
}

func TestOrphanedObjectSurvivesOldAnchorOfMovedHub(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.takesOver(h, c.name("w"), workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}})
	c.ownedBy("cm")
}

func TestLastWriterWinsAfterRestart(t *testing.T) {
	t.Parallel()
	for range 3 { // either order of applying anew would hide a defect now and then
		c, h := newCluster(t), newHub(t)
		first := c.startForOCM(h)
		a, b := c.name("a"), c.name("b")
		h.ask(b, 1, wire.Work{}, c.configMap("cm", "k", "b"))
		h.says(c, b, 1, "Available", metav1.ConditionTrue)
		h.ask(a, 1, wire.Work{}, c.configMap("cm", "k", "a"))
		h.says(c, b, 1, conditionShared, metav1.ConditionTrue)
		h.says(c, a, 1, "Applied", metav1.ConditionTrue)
		c.eventually("the anchor says who yielded", func() bool {
			x := c.applied(hubHashOne + "-" + b)
			return x != nil && x.Annotations[record.SupersededAnnotation] != ""
		})
		first.stop()
		version := c.get("cm").ResourceVersion
		c.startForOCM(h)
		h.ask(c.name("other"), 1, wire.Work{}, c.configMap("canary"))
		h.says(c, c.name("other"), 1, "Available", metav1.ConditionTrue)
		h.ask(a, 2, wire.Work{}, c.configMap("cm", "k", "a"))
		h.says(c, a, 2, "Applied", metav1.ConditionTrue)
		if cm := c.get("cm"); cm.Data["k"] != "a" || cm.ResourceVersion != version {
			t.Fatalf("after a restart it is %q, and was written: %t", cm.Data["k"], cm.ResourceVersion != version)
		}
	}
}

func TestClaimedHubHashGivesNoAccess(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	made := c.strayAnchor(hubHashTwo, workv1.AppliedManifestWorkSpec{HubHash: hubHashTwo, AgentID: hubHashTwo, ManifestWorkName: work})
	h.ask(work, 1, wire.Work{HubHash: hubHashTwo}, c.configMap("cm"))
	h.says(c, work, 1, "Applied", metav1.ConditionFalse)
	if c.get("cm") != nil {
		t.Error("something was applied under the anchor of another hub")
	}
	h.ask(work, 1, wire.Work{HubHash: hubHashTwo, Deleting: true})
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if a := c.applied(made.GetName()); a == nil || a.UID != made.GetUID() || a.DeletionTimestamp != nil || len(a.Annotations) != 0 {
		t.Errorf("the anchor of another hub was touched: %+v", a)
	}

	// Nor is a work of another cluster executed.
	key := wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: "elsewhere", Name: work}
	body, err := json.Marshal(wire.Work{Generation: 1, HubHash: hubHashOne, Spec: workv1.ManifestWorkSpec{Workload: workv1.ManifestsTemplate{
		Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(c.configMap("stray"))}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.sync.Source(spokeName, wire.KindWork).Put(resource.Resource{Key: key.String(), UID: "u", Generation: 1, Body: body}); err != nil {
		t.Fatal(err)
	}
	h.ask(c.name("other"), 1, wire.Work{}, c.configMap("canary"))
	h.says(c, c.name("other"), 1, "Available", metav1.ConditionTrue)
	if c.get("stray") != nil {
		t.Error("a work of another cluster was applied")
	}
}

func TestDeletionSkipsObjectsNeverAllowed(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	user, _ := c.mayWriteConfigMapsAlone()
	c.startForOCM(h, func(cfg *Config) { cfg.Impersonate = user })
	work := c.name("w")
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"` + c.namespace + `"}}`
	h.ask(work, 1, wire.Work{}, c.configMap("cm"), secret)
	h.says(c, work, 1, "Applied", metav1.ConditionFalse)
	h.ask(work, 1, wire.Work{Deleting: true})
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("cm") != nil {
		t.Error("what was applied is left")
	}
}
