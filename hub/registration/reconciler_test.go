// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// fresh is a record as "kubectl spokelet join" makes it.
func fresh() *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: store1, Annotations: map[string]string{managedcluster.AnnotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
}

func (h *harness) namespace() *corev1.Namespace {
	h.t.Helper()
	namespace := &corev1.Namespace{}
	if err := h.client.Get(h.t.Context(), client.ObjectKey{Name: store1}, namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		h.t.Fatal(err)
	}
	return namespace
}

func TestReconcileAdopts(t *testing.T) {
	t.Run("A record gets an id, a finalizer and a namespace", func(t *testing.T) {
		h := newHarness(t, fresh())
		h.reconcileOnce(store1)
		record := h.get(store1)
		if err := identity.ValidateID(record.Annotations[managedcluster.AnnotationClusterID]); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{Finalizer}, record.Finalizers); diff != "" {
			t.Error(diff)
		}
		if namespace := h.namespace(); namespace == nil || namespace.Labels[LabelNamespaceOwner] != namespaceOwner {
			t.Errorf("namespace %+v, want one that is marked as the hub's", namespace)
		}
		if !meta.IsStatusConditionTrue(record.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted) {
			t.Errorf("conditions %+v, want HubAcceptedManagedCluster", record.Status.Conditions)
		}
	})

	t.Run("An id that is there at creation is kept", func(t *testing.T) {
		record := fresh()
		record.Annotations[managedcluster.AnnotationClusterID] = store1ID
		h := newHarness(t, record)
		h.reconcileOnce(store1)
		if got := h.get(store1).Annotations[managedcluster.AnnotationClusterID]; got != store1ID {
			t.Errorf("id %q, want the restored %q", got, store1ID)
		}
	})

	t.Run("A second look writes nothing", func(t *testing.T) {
		h := newHarness(t, fresh())
		h.reconcileOnce(store1)
		h.now = h.now.Add(time.Hour)
		if h.wrote() == 0 {
			t.Fatal("the first look wrote nothing")
		}
		h.reconcileOnce(store1)
		if got := h.wrote(); got != 0 {
			t.Errorf("%d writes, want 0", got)
		}
	})

	t.Run("A cluster that waits for acceptance has its namespace too", func(t *testing.T) {
		record := fresh()
		record.Spec.HubAcceptsClient = false
		h := newHarness(t, record)
		h.reconcileOnce(store1)
		if h.namespace() == nil {
			t.Error("there is no namespace for its join token")
		}
		if conditions := h.get(store1).Status.Conditions; len(conditions) != 0 {
			t.Errorf("conditions %+v, want none: nobody has decided", conditions)
		}
	})

	t.Run("A record that is not ours is left alone", func(t *testing.T) {
		record := fresh()
		record.Annotations = nil
		h := newHarness(t, record)
		h.reconcileOnce(store1)
		if got := h.wrote(); got != 0 || h.namespace() != nil {
			t.Errorf("%d writes, namespace %v", got, h.namespace())
		}
	})

	for name, reserved := range map[string]string{
		"A system namespace": "kube-system", "The default namespace": "default",
		"The hub's namespace": "spokelet-system", "A name with a dot": "store.eu",
	} {
		t.Run(name+" is no cluster's", func(t *testing.T) {
			record := fresh()
			record.Name = reserved
			h := newHarness(t, record)
			h.reconcileOnce(reserved)
			got := h.get(reserved)
			condition := meta.FindStatusCondition(got.Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
			if condition == nil || condition.Reason != ReasonInvalidName || len(got.Finalizers) != 0 {
				t.Errorf("condition %+v, finalizers %v", condition, got.Finalizers)
			}
		})
	}
}

func TestReconcileFollowsTheSession(t *testing.T) {
	h := newHarness(t, fresh())
	available := func() string {
		t.Helper()
		h.reconcileOnce(store1)
		condition := meta.FindStatusCondition(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
		if condition == nil {
			return "none"
		}
		return fmt.Sprintf("%s %s", condition.Status, condition.Reason)
	}
	if got := available(); got != "none" {
		t.Errorf("before the first session: %s", got)
	}
	h.SessionChanged(store1, new(h.identity(store1, h.get(store1).Annotations[managedcluster.AnnotationClusterID])))
	if got, want := available(), "True ManagedClusterAvailable"; got != want {
		t.Errorf("with a session: %s, want %s", got, want)
	}
	if !meta.IsStatusConditionTrue(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionJoined) {
		t.Error("the cluster is not called joined")
	}
	if h.wasCut() {
		t.Error("an admissible session was cut")
	}
	h.SessionChanged(store1, nil)
	if got, want := available(), "Unknown ManagedClusterLeaseUpdateStopped"; got != want {
		t.Errorf("after the cut: %s, want %s", got, want)
	}
	h.wrote()
	h.SessionChanged(store1, nil)
	available()
	if got := h.wrote(); got != 0 {
		t.Errorf("%d writes for a session that is still cut, want 0", got)
	}
}

func TestReconnectGrace(t *testing.T) {
	record := managedCluster(func(r *clusterv1.ManagedCluster) {
		for _, condition := range []string{clusterv1.ManagedClusterConditionJoined, clusterv1.ManagedClusterConditionAvailable} {
			meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Before"})
		}
	})
	h := newHarness(t, record)
	if err := h.reconciler.start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	h.now = h.now.Add(5 * time.Second)
	result := h.reconcileOnce(store1)
	if !meta.IsStatusConditionTrue(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
		t.Error("five seconds after the hub's start the cluster is called disconnected")
	}
	if want := 10 * time.Second; result.RequeueAfter != want {
		t.Errorf("next look in %s, want %s", result.RequeueAfter, want)
	}
	h.now = h.now.Add(10 * time.Second)
	result = h.reconcileOnce(store1)
	if meta.IsStatusConditionTrue(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
		t.Error("after the grace the cluster is still called available")
	}
	if result.RequeueAfter != 0 {
		t.Errorf("another look in %s: that would be polling", result.RequeueAfter)
	}
}

func TestUpdateSummary(t *testing.T) {
	h := newHarness(t, fresh())
	summary := Summary{
		KubernetesVersion: "v1.37.2",
		Capacity:          corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
		Allocatable:       corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")},
		Labels: map[string]string{
			corev1.LabelTopologyRegion: "eu", "cluster.open-cluster-management.io/clusterset": "privileged",
		},
	}
	h.UpdateSummary(store1, summary)
	h.reconcileOnce(store1)
	record := h.get(store1)
	want := clusterv1.ManagedClusterStatus{
		Version:     clusterv1.ManagedClusterVersion{Kubernetes: "v1.37.2"},
		Capacity:    clusterv1.ResourceList{clusterv1.ResourceCPU: resource.MustParse("4")},
		Allocatable: clusterv1.ResourceList{clusterv1.ResourceCPU: resource.MustParse("3500m")},
	}
	if diff := cmp.Diff(want, record.Status, cmpopts.IgnoreFields(want, "Conditions")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{corev1.LabelTopologyRegion: "eu"}, record.Labels); diff != "" {
		t.Errorf("a spoke chose its own labels: %s", diff)
	}
	h.wrote()
	// The same amounts in another spelling are the same.
	summary.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4000m")}
	h.UpdateSummary(store1, summary)
	h.reconcileOnce(store1)
	if got := h.wrote(); got != 0 {
		t.Errorf("%d writes for the same amounts, want 0", got)
	}
}

func TestDeniedClusterKeepsNamespace(t *testing.T) {
	h := newHarness(t, fresh())
	h.reconcileOnce(store1)
	h.change(store1, unaccepted)
	h.reconcileOnce(store1)
	if !h.wasCut() {
		t.Error("the session of a denied cluster lives on")
	}
	condition := meta.FindStatusCondition(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionHubAccepted)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != ReasonDenied {
		t.Errorf("condition %+v, want %s", condition, ReasonDenied)
	}
	if namespace := h.namespace(); namespace == nil || !namespace.DeletionTimestamp.IsZero() {
		t.Error("the namespace was deleted, and with it every work")
	}
}

func TestDetachingConditionIsSet(t *testing.T) {
	others := map[string]string{"team": "tills"}
	for name, objects := range map[string][]client.Object{
		"in a namespace that the hub made": {fresh()},
		"in a namespace that was there":    {fresh(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: store1, Labels: others}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, objects...)
			says := func(change func(*clusterv1.ManagedCluster)) (label bool, condition bool) {
				t.Helper()
				record := h.get(store1)
				change(record)
				if err := h.client.Update(t.Context(), record); err != nil {
					t.Fatal(err)
				}
				h.reconcileOnce(store1)
				h.wrote()
				h.reconcileOnce(store1)
				if got := h.wrote(); got != 0 {
					t.Errorf("a second look wrote %d times", got)
				}
				return h.namespace().Labels[managedcluster.LabelDetaching] == "true",
					meta.IsStatusConditionTrue(h.get(store1).Status.Conditions, managedcluster.ConditionDetaching)
			}
			if label, condition := says(func(r *clusterv1.ManagedCluster) { managedcluster.MarkDetaching(r, h.now) }); !label || !condition {
				t.Errorf("marked: label %t, condition %t", label, condition)
			}
			if h.wasCut() {
				t.Error("the session was cut by which the cluster cleans up")
			}
			if label, condition := says(managedcluster.UnmarkDetaching); label || condition {
				t.Errorf("retained: label %t, condition %t", label, condition)
			}
			if got := h.namespace().Labels; len(objects) > 1 && got["team"] != others["team"] {
				t.Errorf("labels %v, want those of others as they were", got)
			}
		})
	}
}

func TestDetach(t *testing.T) {
	attached := func(t *testing.T, objects ...client.Object) *harness {
		t.Helper()
		h := newHarness(t, append(objects, fresh())...)
		h.reconcileOnce(store1)
		h.issueToken(store1)
		if err := h.client.Delete(t.Context(), h.get(store1)); err != nil {
			t.Fatal(err)
		}
		h.wasCut()
		return h
	}
	gone := func(h *harness) bool {
		err := h.client.Get(h.t.Context(), client.ObjectKey{Name: store1}, &clusterv1.ManagedCluster{})
		return apierrors.IsNotFound(err)
	}

	t.Run("Sessions, works, node, token and namespace go before the record", func(t *testing.T) {
		h := attached(t)
		h.works.left = []string{"Work/b", "Work/a"}
		h.reconcileOnce(store1)
		if !h.wasCut() || len(h.works.released) == 0 || len(h.nodes.removed) == 0 || h.namespace() != nil {
			t.Errorf("released %v, removed %v, namespace %v", h.works.released, h.nodes.removed, h.namespace())
		}
		if event := <-h.events.Events; !strings.Contains(event, "2 works") || !strings.Contains(event, "Work/a, Work/b") {
			t.Errorf("event %q, want one that lists what was left", event)
		}
		h.reconcileOnce(store1)
		if !gone(h) {
			t.Error("the record stays after everything else is gone")
		}
	})

	t.Run("A namespace that others made stays, without the join token", func(t *testing.T) {
		h := attached(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: store1}})
		if got := h.namespace().Labels[clusterv1.ClusterNameLabelKey]; got != store1 {
			t.Errorf("cluster's name on the namespace is %q: admission would not see its works", got)
		}
		h.reconcileOnce(store1)
		if !gone(h) || h.namespace() == nil {
			t.Errorf("record gone: %v, namespace: %v", gone(h), h.namespace())
		}
		secrets := &corev1.SecretList{}
		if err := h.client.List(t.Context(), secrets); err != nil || len(secrets.Items) != 0 {
			t.Errorf("secrets %v, %v: the token outlives its cluster", secrets.Items, err)
		}
	})

	t.Run("Works that cannot be released keep the record", func(t *testing.T) {
		h := attached(t)
		h.works.err = errors.New("boom")
		request := reconcile.Request{NamespacedName: types.NamespacedName{Name: store1}}
		if _, err := h.reconciler.Reconcile(t.Context(), request); !errors.Is(err, h.works.err) {
			t.Errorf("Reconcile: %v, want %v", err, h.works.err)
		}
		if gone(h) || h.namespace() == nil {
			t.Error("the record or the namespace went before the works were released")
		}
	})

	t.Run("A long list of works fits into an event", func(t *testing.T) {
		var left []string
		for i := range 5000 {
			left = append(left, fmt.Sprintf("Work/%s-%04d", strings.Repeat("x", 200), i))
		}
		if got := orphanedMessage(left); len(got) > 1024 || !strings.HasPrefix(got, "5000 works") {
			t.Errorf("message of %d bytes: %.60s", len(got), got)
		}
	})
}
