// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// eachDialect runs a test for the works of both APIs.
func eachDialect(t *testing.T, test func(*testing.T, string)) {
	t.Helper()
	for _, dialect := range []string{wire.DialectMulticluster, wire.DialectManifestWork} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			test(t, dialect)
		})
	}
}

// askFor publishes a work of any API, whatever it asks for.
func (h *testHub) askFor(dialect, name string, w wire.Work, manifests ...string) {
	h.t.Helper()
	if dialect == wire.DialectManifestWork {
		w.HubHash = hubHashOne
	}
	for _, m := range manifests {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	body, err := json.Marshal(w)
	if err != nil {
		h.t.Fatal(err)
	}
	key := wire.WorkKey{Dialect: dialect, Namespace: spokeName, Name: name}.String()
	if err := h.sync.Source(spokeName, wire.KindWork).Put(resource.Resource{Key: key, UID: "uid-" + name, Generation: w.Generation, Body: body}); err != nil {
		h.t.Fatal(err)
	}
}

// waitForReport waits until a work of any API says something, and returns what it says then.
func (h *testHub) waitForReport(c *testCluster, dialect, name, what string, so func(reportedStatus) bool) reportedStatus {
	c.t.Helper()
	key := wire.WorkKey{Dialect: dialect, Namespace: spokeName, Name: name}.String()
	var s reportedStatus
	defer func() {
		if c.t.Failed() {
			c.t.Logf("status of %s: %+v", name, s)
		}
	}()
	c.eventually(name+" "+what, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		s = h.statuses[key]
		return so(s)
	})
	return s
}

// has tells whether a status has conditions, each as "Type=Status/Reason@generation".
func (s reportedStatus) has(conditions ...string) bool {
	all := text(s.Conditions)
	return !slices.ContainsFunc(conditions, func(c string) bool { return !slices.Contains(all, c) })
}

// canary is a work that is not suspended, by which is seen that the agent has had its turn.
func (c *testCluster) canary(h *testHub) {
	c.t.Helper()
	h.ask(c.name("canary"), 1, wire.Work{}, c.configMap("canary", "k", "v"))
	h.says(c, c.name("canary"), 1, "Available", metav1.ConditionTrue)
}

// unchanged fails if an object is written in the time in which the canary is repaired, a
// few times over.
func (c *testCluster) unchanged(what string, names ...string) {
	c.t.Helper()
	versions := func() (out []string) {
		for _, name := range names {
			version := "absent"
			if cm := c.get(name); cm != nil {
				version = cm.ResourceVersion
			}
			out = append(out, name+" "+version)
		}
		return out
	}
	before := versions()
	for range 5 {
		c.patch("canary", `{"data":{"k":"strayed"}}`)
		c.eventually("the canary is repaired", func() bool { cm := c.get("canary"); return cm != nil && cm.Data["k"] == "v" })
	}
	if after := versions(); !slices.Equal(before, after) {
		c.t.Errorf("%s: %v, and it was %v", what, after, before)
	}
}

func TestSuspendedWorkIsUntouchedAndReported(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect string) {
		c, h := newCluster(t), newHub(t)
		start := func() *testAgent { return c.startForOCM(h) }
		a := start()
		c.canary(h)
		work := c.name("w")
		h.askFor(dialect, work, wire.Work{Generation: 1}, c.configMap("kept", "k", "1"), c.configMap("pruned", "k", "1"))
		h.waitForReport(c, dialect, work, "is applied", func(s reportedStatus) bool { return s.has("Available=True/ResourcesAvailable@1") })
		suspended := wire.Work{Generation: 1, Suspended: true, AppliedGeneration: 1}
		h.askFor(dialect, work, suspended, c.configMap("kept", "k", "1"), c.configMap("pruned", "k", "1"))
		h.waitForReport(c, dialect, work, "is suspended", func(s reportedStatus) bool { return s.has("Suspended=True/SuspendedByAnnotation@1") })

		c.patch("kept", `{"data":{"k":"debugging"}}`)
		suspended.Generation = 2
		h.askFor(dialect, work, suspended, c.configMap("kept", "k", "2"), c.configMap("new", "k", "2"))
		s := h.waitForReport(c, dialect, work, "has another generation", func(s reportedStatus) bool { return s.has("Suspended=True/SuspendedByAnnotation@2") })
		applied := meta.FindStatusCondition(s.Conditions, conditionApplied)
		if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration != 1 {
			t.Errorf("Applied: %+v", applied)
		}
		if m := meta.FindStatusCondition(s.Conditions, wire.ConditionSuspended).Message; !strings.Contains(m, "generation 1") {
			t.Errorf("message: %q", m)
		}
		c.unchanged("nothing is applied, repaired or pruned", "kept", "pruned", "new")

		a.stop()
		start()
		h.waitForReport(c, dialect, work, "is told by another process", func(s reportedStatus) bool {
			return s.has("Suspended=True/SuspendedByAnnotation@2") && meta.FindStatusCondition(s.Conditions, conditionApplied) == nil
		})
		if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "kept", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		h.waitForReport(c, dialect, work, "lacks an object", func(s reportedStatus) bool {
			available := meta.FindStatusCondition(s.Conditions, conditionAvailable)
			return available != nil && available.Status == metav1.ConditionFalse && available.ObservedGeneration == 1
		})
		c.unchanged("nothing is applied, repaired or pruned after a restart", "kept", "pruned", "new")

		h.askFor(dialect, work, wire.Work{Generation: 2}, c.configMap("kept", "k", "2"), c.configMap("new", "k", "2"))
		s = h.waitForReport(c, dialect, work, "is applied again", func(s reportedStatus) bool { return s.has("Available=True/ResourcesAvailable@2") })
		if meta.FindStatusCondition(s.Conditions, wire.ConditionSuspended) != nil {
			t.Errorf("suspended no more: %v", text(s.Conditions))
		}
		c.eventually("what is wanted now is there", func() bool {
			kept := c.get("kept")
			return kept != nil && kept.Data["k"] == "2" && c.get("new") != nil && c.get("pruned") == nil
		})
	})
}

func TestSuspendedWorkCreatesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect string) {
		c, h := newCluster(t), newHub(t)
		c.startForOCM(h)
		c.canary(h)
		work := c.name("w")
		p, anchor := ManifestWork(), hubHashOne+"-"+work
		if dialect == wire.DialectMulticluster {
			p, anchor = Multicluster(), work
		}
		recorded := func() bool {
			_, err := c.dynamic.Resource(p.Anchor.Resource).Get(t.Context(), anchor, metav1.GetOptions{})
			return err == nil
		}
		h.askFor(dialect, work, wire.Work{Generation: 1, Suspended: true}, c.configMap("cm"))
		h.waitForReport(c, dialect, work, "is suspended", func(s reportedStatus) bool { return s.has("Suspended=True/SuspendedByAnnotation@1") })
		c.unchanged("it was never applied", "cm")
		if c.get("cm") != nil || recorded() {
			t.Error("something was made")
		}
		h.askFor(dialect, work, wire.Work{Generation: 1}, c.configMap("cm"), c.service("held"))
		h.waitForReport(c, dialect, work, "is applied", func(s reportedStatus) bool { return s.has("Available=True/ResourcesAvailable@1") })

		// The Service holds up the deletion, in the midst of which it is suspended.
		c.patchService("held", `{"metadata":{"finalizers":["example.com/held"]}}`)
		h.askFor(dialect, work, wire.Work{Generation: 2, Deleting: true})
		held := func() *corev1.Service {
			svc, err := c.kube.CoreV1().Services(c.namespace).Get(t.Context(), "held", metav1.GetOptions{})
			if err != nil {
				return nil
			}
			return svc
		}
		c.eventually("the Service is being deleted", func() bool { svc := held(); return svc != nil && svc.DeletionTimestamp != nil })
		h.askFor(dialect, work, wire.Work{Generation: 2, Deleting: true, Suspended: true, AppliedGeneration: 1}, c.configMap("cm"), c.service("held"))
		s := h.waitForReport(c, dialect, work, "is suspended as it goes", func(s reportedStatus) bool { return s.has("Suspended=True/SuspendedByAnnotation@2") })
		if meta.FindStatusCondition(s.Conditions, conditionDeleting) != nil || s.Finalized {
			t.Errorf("nothing is deleted: %v, finalized %t", text(s.Conditions), s.Finalized)
		}
		c.patchService("held", `{"metadata":{"finalizers":null}}`)
		c.eventually("the Service is gone", func() bool { return held() == nil })
		c.unchanged("the work is suspended", "cm")
		if c.get("cm") == nil || !recorded() {
			t.Fatal("something was deleted")
		}
		h.askFor(dialect, work, wire.Work{Generation: 2, Deleting: true})
		h.waitForReport(c, dialect, work, "is finalized", func(s reportedStatus) bool { return s.Finalized })
		if c.get("cm") != nil || recorded() {
			t.Error("something is left")
		}
	})
}
