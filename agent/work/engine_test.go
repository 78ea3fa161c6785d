// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/agent/work/speccache"
)

func TestWorkIsAppliedUpdatedAndDeleted(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("life")

	h.want(name, 1, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
	s := h.is(c, name, 1, conditionHealthy, metav1.ConditionTrue)
	applied := meta.FindStatusCondition(s.Conditions, conditionApplied)
	if applied.Status != metav1.ConditionTrue || applied.Reason != "AppliedWorkComplete" {
		t.Errorf("Applied = %+v", applied)
	}
	if len(s.Manifests) != 2 || s.Manifests[1].ResourceMeta.Name != "b" || s.Manifests[1].ResourceMeta.Resource != "configmaps" {
		t.Errorf("manifests = %+v", s.Manifests)
	}
	live, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	anchor, _ := c.anchor(name)
	want := []metav1.OwnerReference{{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "AppliedWork", Name: name, UID: anchor.GetUID()}}
	if diff := cmp.Diff(want, live.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if m := live.ManagedFields; len(m) != 1 || m[0].Manager != "work-agent" || m[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managers = %+v", m)
	}
	c.eventually("anchor lists both with their UIDs", func() bool { return listed(c, name) == "a:true b:true" })

	h.want(name, 2, c.configMap("b", "k", "2"))
	h.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
	c.eventually("a is pruned and b changed", func() bool {
		return cmp.Equal(c.configMaps(), map[string]map[string]string{"b": {"k": "2"}}) && listed(c, name) == "b:true"
	})

	h.want(name, 2)
	h.finalized(c, name)
	if left := c.configMaps(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, ok := c.anchor(name); ok {
		t.Error("the anchor is left behind")
	}
}

// listed renders an anchor's list as "name:has uid ...".
func listed(c *testCluster, name string) string {
	var out []string
	for _, r := range c.appliedResources(name) {
		out = append(out, r.Name+":"+strconv.FormatBool(r.UID != ""))
	}
	return strings.Join(out, " ")
}

func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("drift")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionHealthy, metav1.ConditionTrue)
	c.recorded(name)
	// An apply ends by telling of the work as it is then. The status of another generation
	// says that all that were begun have ended.
	generation := int64(1)
	settled := func() []metav1.Condition {
		generation++
		h.want(name, generation, c.configMap("a", "k", "1"))
		conditions := slices.Clone(h.is(c, name, generation, conditionHealthy, metav1.ConditionTrue).Conditions)
		for i := range conditions {
			conditions[i].ObservedGeneration -= generation
		}
		return conditions
	}
	before := settled()
	maps := c.kube.CoreV1().ConfigMaps(c.namespace)
	tests := map[string]struct {
		reason string
		stray  func(context.Context) error
	}{
		"a deleted object comes back": {
			reason: "absence is drift",
			stray:  func(ctx context.Context) error { return maps.Delete(ctx, "a", metav1.DeleteOptions{}) },
		},
		"a changed field is taken back": {
			reason: "a foreign writer took a field that we own",
			stray:  func(ctx context.Context) error { return patch(ctx, c, "a", `{"data":{"k":"2"}}`) },
		},
		"a removed field comes back": {
			reason: "a foreign writer removed a field that we own",
			stray:  func(ctx context.Context) error { return patch(ctx, c, "a", `{"data":{"k":null}}`) },
		},
		"a removed ownerReference comes back": {
			reason: "without it another agent would take the object for nobody's",
			stray:  func(ctx context.Context) error { return patch(ctx, c, "a", `{"metadata":{"ownerReferences":null}}`) },
		},
	}
	for label, tc := range tests {
		if err := tc.stray(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.eventually(label+": "+tc.reason, func() bool {
			live, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
			return err == nil && live.Data["k"] == "1" && len(live.OwnerReferences) == 1
		})
		if diff := cmp.Diff(before, settled()); diff != "" {
			t.Errorf("%s, and that changed the conditions of the work (-before +after):\n%s", label, diff)
		}
	}
}

func patch(ctx context.Context, c *testCluster, name, body string) error {
	_, err := c.kube.CoreV1().ConfigMaps(c.namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"})
	return err
}

func TestApplyKeepsForeignFields(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("foreign")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionHealthy, metav1.ConditionTrue)
	if err := patch(t.Context(), c, "a", `{"data":{"theirs":"x"},"metadata":{"labels":{"l":"x"}}}`); err != nil {
		t.Fatal(err)
	}
	h.want(name, 2, c.configMap("a", "k", "2"))
	h.is(c, name, 2, conditionApplied, metav1.ConditionTrue)
	if diff := cmp.Diff(map[string]map[string]string{"a": {"k": "2", "theirs": "x"}}, c.configMaps()); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

func TestSharedObjectIsDeletedWithLastWork(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	one, two := c.name("one"), c.name("two")
	h.want(one, 1, c.configMap("shared", "k", "one"))
	h.is(c, one, 1, conditionApplied, metav1.ConditionTrue)
	h.want(two, 1, c.configMap("shared", "k", "two"))
	h.is(c, two, 1, conditionApplied, metav1.ConditionTrue)
	first, _ := c.anchor(one)
	second, _ := c.anchor(two)
	c.ownedBy("shared", first.GetUID(), second.GetUID())
	returned := c.returns("shared")
	h.want(two, 1)
	h.finalized(c, two)
	c.eventually("the other one has it its way again", func() bool {
		return cmp.Equal(c.configMaps(), map[string]map[string]string{"shared": {"k": "one"}})
	})
	c.ownedBy("shared", first.GetUID())
	if back := returned(); len(back) > 0 {
		t.Errorf("%v came back", back)
	}
	h.want(one, 1)
	h.finalized(c, one)
	if left := c.configMaps(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDeletionWaitsForFinalizers(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("slow")
	held := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","namespace":"` + c.namespace + `","finalizers":["example.com/held"]}}`
	h.want(name, 1, held, c.configMap("free"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	h.want(name, 1)
	s := h.is(c, name, 1, conditionDeleting, metav1.ConditionTrue)
	if s.Finalized {
		t.Error("finalized while an object is still there")
	}
	c.eventually("the anchor lists what is going", func() bool { return listed(c, name) == "held:true" })
	if err := patch(t.Context(), c, "held", `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	h.finalized(c, name)
}

func TestDeletedAnchorIsRecreated(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("anchor")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	first, _ := c.anchor(name)
	if err := c.dynamic.Resource(Multicluster().Anchor.Resource).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("a new anchor owns the object", func() bool {
		now, ok := c.anchor(name)
		live, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
		return ok && err == nil && now.GetUID() != first.GetUID() && len(live.OwnerReferences) == 1 && live.OwnerReferences[0].UID == now.GetUID()
	})
}

func TestUnknownWorkIsEvictedAfterGracePeriod(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	a := c.start(h)
	name := c.name("evict")
	h.want(name, 1, c.configMap("a"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	a.stop()
	h.removeWork(name)
	c.start(h, func(cfg *Config) { cfg.EvictionGrace = 50 * time.Millisecond })
	c.eventually("nothing is left", func() bool {
		_, ok := c.anchor(name)
		return !ok && len(c.configMaps()) == 0
	})
}

func TestEngineContinuesWithoutHub(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	keep := func(cfg *Config) { cfg.Namespace = c.namespace }
	a := c.start(h, keep)
	name := c.name("alone")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	c.eventually("the copy is written", func() bool {
		list, err := c.kube.CoreV1().Secrets(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: speccache.CopyLabel + "=works"})
		return err == nil && len(list.Items) == 1
	})
	a.stop()
	if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.start(nil, keep)
	c.eventually("the object is back", func() bool { return len(c.configMaps()) == 1 })
}

func TestOrphanKeepsObjects(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	a := c.start(h)
	name := c.name("orphan")
	h.want(name, 1, c.configMap("a", "k", "1"))
	h.is(c, name, 1, conditionApplied, metav1.ConditionTrue)
	c.eventually("recorded", func() bool { return listed(c, name) == "a:true" })
	a.stop()
	anchor, _ := c.anchor(name)
	key, read, err := record.Decode(Multicluster().Anchor, anchor)
	if err != nil || len(read.Objects) != 1 {
		t.Fatalf("anchor of %v lists %v, %v", key, read, err)
	}
	if err := a.orphan(t.Context(), Multicluster(), anchor); err != nil {
		t.Fatal(err)
	}
	live, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(live.OwnerReferences) != 0 {
		t.Errorf("object = %+v, %v", live, err)
	}
	if _, ok := c.anchor(name); ok {
		t.Error("the anchor is left behind")
	}
}

func TestDefinitionAndItsObjectConvergeInOneWork(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("crd")
	group := c.namespace + ".example.com"
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.` + group + `"},"spec":{"group":"` + group +
		`","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	thing := `{"apiVersion":"` + group + `/v1","kind":"Thing","metadata":{"name":"x","namespace":"` + c.namespace + `"},"spec":{"n":1}}`
	h.want(name, 1, thing, definition)
	s := h.is(c, name, 1, conditionHealthy, metav1.ConditionTrue)
	if got := s.Manifests[0].ResourceMeta.Kind; got != "Thing" {
		t.Errorf("first manifest is a %s: the order of the status is that of the work", got)
	}
	h.want(name, 1)
	h.finalized(c, name)
}

func TestHealthChangesAreReported(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.start(h)
	name := c.name("health")
	pvc := `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"p","namespace":"` + c.namespace + `"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"none","resources":{"requests":{"storage":"1Gi"}}}}`
	h.want(name, 1, pvc)
	h.is(c, name, 1, conditionHealthy, metav1.ConditionFalse)
	claims := c.kube.CoreV1().PersistentVolumeClaims(c.namespace)
	p, err := claims.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.is(c, name, 1, conditionHealthy, metav1.ConditionTrue)
	// The protection of claims has no controller here to lift it.
	if err := claims.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = claims.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
}
