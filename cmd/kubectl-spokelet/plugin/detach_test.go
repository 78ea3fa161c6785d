// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// record is that of a cluster as it is now.
func (c *cli) record(name string) *clusterv1.ManagedCluster {
	c.t.Helper()
	record := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(c.t.Context(), client.ObjectKey{Name: name}, record); err != nil {
		c.t.Fatal(err)
	}
	return record
}

// kind is that of the works of these tests.
var kind = workKinds[1]

func work(finalizers ...string) client.Object {
	w := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "store1", Name: "app", Finalizers: finalizers}}
	w.SetGroupVersionKind(kind)
	return w
}

func TestDetach(t *testing.T) {
	exists := func(c *cli) bool { return c.exists("store1") }

	t.Run("Works go first, then the record", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), work("example.com/applied"))
		c.works[kind] = true
		c.watched = func() {
			if !exists(c) {
				t.Error("the record went before its works")
			}
			if err := c.hub.Patch(t.Context(), work(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
		}
		if code := c.run("detach", "store1"); code != exitDone || exists(c) {
			t.Errorf("exit code %d, record exists: %v: %s", code, exists(c), c.err.String())
		}
		c.golden("detach")
	})

	t.Run("A cluster that cannot clean up is not detached, and what holds it up is named", func(t *testing.T) {
		held := work("example.com/applied")
		held.SetAnnotations(map[string]string{v1alpha1.AnnotationOwners: "WorkSet.shop.tills"})
		c := newCLI(t, cluster("store1", condition(metav1.ConditionUnknown)), held)
		c.works[kind] = true
		if code := c.run("detach", "store1", "--timeout", "50ms"); code != exitTimeout || !exists(c) {
			t.Errorf("exit code %d, record exists: %v", code, exists(c))
		}
		c.golden("detach-held")
	})

	t.Run("By force, and says what was left", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), work("example.com/applied"))
		c.works[kind] = true
		if code := c.run("detach", "store1", "--force"); code != exitDone || exists(c) {
			t.Errorf("exit code %d, record exists: %v", code, exists(c))
		}
		c.golden("detach-force")
	})

	t.Run("A record of another tool is left alone", func(t *testing.T) {
		c := newCLI(t, cluster("store1", func(c *clusterv1.ManagedCluster) { c.Annotations = nil }))
		if code := c.run("detach", "store1"); code != exitFailed || !exists(c) {
			t.Errorf("exit code %d, record exists: %v", code, exists(c))
		}
	})

	t.Run("A cluster that is unknown is not found", func(t *testing.T) {
		if code := newCLI(t).run("detach", "store1"); code != exitNotFound {
			t.Errorf("exit code %d, want %d", code, exitNotFound)
		}
	})
}

func TestNothingNewIsMadeOnceAClusterLeaves(t *testing.T) {
	t.Run("The record says that its cluster leaves before anything is deleted", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), work("example.com/applied"))
		c.works[kind], c.noHub = true, true
		if code := c.run("detach", "store1", "--timeout", "50ms"); code != exitTimeout || !strings.Contains(c.err.String(), "is the hub running?") {
			t.Errorf("exit code %d: %s", code, c.err.String())
		}
		if !managedcluster.IsDetaching(c.record("store1")) {
			t.Error("the record does not say that its cluster leaves")
		}
		left := work()
		if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(left), left); err != nil || !left.GetDeletionTimestamp().IsZero() {
			t.Errorf("a work was deleted that could be made again: %v", err)
		}
	})

	t.Run("A work that is made while the hub learns of it is deleted, too", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), work("example.com/applied"))
		c.works[kind] = true
		c.watched = func() { // of the works: the first is gone, and there is another
			if err := c.hub.Patch(t.Context(), work(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
				t.Error(err)
			}
			late := work()
			late.SetName("late")
			if err := c.hub.Create(t.Context(), late); err != nil {
				t.Error(err)
			}
		}
		if code := c.run("detach", "store1", "--timeout", "2s"); code != exitDone || c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
		late := work()
		late.SetName("late")
		if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(late), late); !apierrors.IsNotFound(err) {
			t.Errorf("the late work is there: %v", err)
		}
	})

	t.Run("Detaching is cancelled", func(t *testing.T) {
		c := newCLI(t, cluster("store1", func(c *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(c, time.Now()) }))
		if code := c.run("detach", "store1", "--cancel"); code != exitDone || managedcluster.IsDetaching(c.record("store1")) {
			t.Errorf("exit code %d, taints %v: %s", code, c.record("store1").Spec.Taints, c.err.String())
		}
		if code := c.run("detach", "store1", "--cancel", "--force"); code != exitUsage {
			t.Errorf("exit code %d with --force, want %d", code, exitUsage)
		}
	})
}

func TestARecordThatTheHubRefusesGoesAlone(t *testing.T) {
	refused := cluster("default", func(c *clusterv1.ManagedCluster) {
		c.Status.Conditions = []metav1.Condition{{
			Type: clusterv1.ManagedClusterConditionHubAccepted, Status: metav1.ConditionFalse, Reason: managedcluster.ReasonInvalidName,
		}}
	})
	others := work()
	others.SetNamespace("default")
	c := newCLI(t, refused, others)
	c.works[kind], c.noHub = true, true
	if code := c.run("detach", "default", "--timeout", "5s"); code != exitDone || c.exists("default") {
		t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("default"), c.err.String())
	}
	if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(others), others); err != nil {
		t.Errorf("works of a namespace that is not the cluster's: %v", err)
	}
}
