// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// admit asks for a pipe, or, once the agent has stated a UID, for a session.
func admit(h *harness, who identity.Cluster, uid *string) error {
	if uid == nil {
		return h.Gate().Admit(h.t.Context(), who)
	}
	return h.Gate().AdmitSpoke(h.t.Context(), who, *uid)
}

func TestGateAdmits(t *testing.T) {
	cases := map[string]struct {
		reason string
		record *clusterv1.ManagedCluster
		who    func(*identity.Cluster)
		// uid is what the agent states; nil while it has said nothing.
		uid  *string
		want error
	}{
		"An accepted cluster":                     {record: managedCluster()},
		"An accepted cluster, with its first UID": {record: managedCluster(), uid: new(store1NS)},
		"An accepted cluster, with its UID":       {record: managedCluster(pinned), uid: new(store1NS)},
		"A cluster that is not accepted":          {record: managedCluster(unaccepted), want: ErrNotAccepted},
		"A cluster without a record": {
			record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Name = "other" }), want: ErrUnknown,
		},
		"A record that is not ours": {record: managedCluster(unmanaged), want: ErrUnknown},
		"A record without an id":    {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Annotations[managedcluster.AnnotationClusterID] = "" }), want: ErrUnknown},
		"A record on its way out":   {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.DeletionTimestamp = new(metav1.Unix(1, 0)) }), want: ErrUnknown},
		"A certificate of before the cluster was created again": {
			reason: "the name is the same, the id is not",
			record: managedCluster(), who: func(c *identity.Cluster) { c.ID = otherID }, want: ErrStranger,
		},
		"A certificate without an id": {record: managedCluster(), who: func(c *identity.Cluster) { c.ID = "" }, want: ErrStranger},
		"A certificate of another hub": {
			record: managedCluster(), who: func(c *identity.Cluster) { c.HubID = otherID }, want: ErrStranger,
		},
		"A second kube-system UID": {record: managedCluster(pinned), uid: new(otherNS), want: ErrOtherSpoke},
		"An agent that states no UID": {
			reason: "a copied certificate would serve in any cluster",
			record: managedCluster(pinned), uid: new(""), want: errRequest,
		},
		"An agent that states no UID, first": {record: managedCluster(), uid: new(""), want: errRequest},
		"A UID that is none":                 {record: managedCluster(), uid: new(strings.Repeat("a", 65)), want: errRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, tc.record)
			who := h.identity(store1, store1ID)
			if tc.who != nil {
				tc.who(&who)
			}
			err := admit(h, who, tc.uid)
			if !errors.Is(err, tc.want) || (tc.want == nil && err != nil) {
				t.Fatalf("Admit: %v, want %v: %s", err, tc.want, tc.reason)
			}
			if err == nil {
				return
			}
			if got := testutil.ToFloat64(h.gate.counters.admission.WithLabelValues(refusalReason(tc.want))); got != 1 {
				t.Errorf("the metric counts %v for %v", got, tc.want)
			}
		})
	}

	t.Run("Nobody is admitted before the records are known", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		for _, forget := range []func(){func() { h.setSynced(false) }, func() { h.gate.synced.Store(nil) }} {
			forget()
			if err := h.Gate().Admit(t.Context(), h.identity(store1, store1ID)); !errors.Is(err, ErrNotReady) {
				t.Errorf("Admit: %v, want %v", err, ErrNotReady)
			}
		}
	})

	t.Run("Of two kube-system UIDs at once one is pinned, and only its bearer admitted", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		errs := make([]error, 2)
		var group sync.WaitGroup
		for i, uid := range []string{store1NS, otherNS} {
			group.Go(func() { errs[i] = h.Gate().AdmitSpoke(t.Context(), h.identity(store1, store1ID), uid) })
		}
		group.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("admitted: %v and %v, want one", errs[0], errs[1])
		}
	})
}

func TestGateReportsOtherKubeSystemUID(t *testing.T) {
	h := newHarness(t, managedCluster(pinned))
	for range 3 {
		if err := h.Gate().AdmitSpoke(t.Context(), h.identity(store1, store1ID), otherNS); !errors.Is(err, ErrOtherSpoke) {
			t.Fatal(err)
		}
	}
	h.reconcileOnce(store1)
	condition := meta.FindStatusCondition(h.get(store1).Status.Conditions, ConditionIdentityConflict)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != ReasonUIDMismatch {
		t.Fatalf("condition %+v, want one that reports it", condition)
	}
	event := <-h.events.Events
	if !strings.Contains(event, ReasonUIDMismatch) {
		t.Errorf("event %q", event)
	}
	for _, uid := range []string{store1NS, otherNS} {
		if strings.Contains(event+condition.Message, uid) {
			t.Errorf("UID %s is told to whoever reads the event %q or the condition %q", uid, event, condition.Message)
		}
	}

	attempt := request(t, newKey(t), store1, h.issueToken(store1))
	if _, err := h.Enroller().Enroll(t.Context(), attempt); err != nil {
		t.Fatal(err)
	}
	h.reconcileOnce(store1)
	if meta.FindStatusCondition(h.get(store1).Status.Conditions, ConditionIdentityConflict) != nil {
		t.Error("a new join did not remove the condition")
	}
}

func TestGateDisconnectsWhenRecordChanges(t *testing.T) {
	cases := map[string]struct {
		change func(*clusterv1.ManagedCluster)
		cut    bool
	}{
		"hubAcceptsClient becomes false":        {change: unaccepted, cut: true},
		"the annotation is taken away":          {change: unmanaged, cut: true},
		"the record is being deleted":           {change: func(r *clusterv1.ManagedCluster) { r.DeletionTimestamp = new(metav1.Unix(1, 0)) }, cut: true},
		"the record was deleted and made again": {change: func(r *clusterv1.ManagedCluster) { r.UID = "uid-2" }, cut: true},
		"the cluster id is another":             {change: func(r *clusterv1.ManagedCluster) { r.Annotations[managedcluster.AnnotationClusterID] = otherID }, cut: true},
		"a label changes":                       {change: func(r *clusterv1.ManagedCluster) { r.Labels = map[string]string{"a": "b"} }},
		"the status changes":                    {change: func(r *clusterv1.ManagedCluster) { r.Status.Version.Kubernetes = "v1.37.2" }},
		"the kube-system UID is pinned":         {change: pinned},
	}
	for name, tc := range cases {
		t.Run("Sessions when "+name, func(t *testing.T) {
			h := newHarness(t)
			before, after := managedCluster(), managedCluster(tc.change)
			h.gate.eventHandler().OnUpdate(before, after)
			if got := h.wasCut(); got != tc.cut {
				t.Errorf("cut: %v, want %v", got, tc.cut)
			}
		})
	}

	t.Run("A session that was opened while its record went away is cut too", func(t *testing.T) {
		h := newHarness(t)
		h.SessionChanged(store1, new(h.identity(store1, store1ID)))
		h.reconcileOnce(store1)
		if !h.wasCut() {
			t.Error("the session lives on")
		}
	})
}

func TestIssuerRenewsCertificates(t *testing.T) {
	csr := func(t *testing.T, c identity.Cluster) []byte {
		t.Helper()
		der, err := identity.NewRequest(newKey(t), c)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}

	t.Run("A live session renews its certificate", func(t *testing.T) {
		h := newHarness(t, managedCluster())
		who := h.identity(store1, store1ID)
		chain, bundle, err := h.Issuer().Issue(t.Context(), who, csr(t, who))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := identity.ClusterOf(leafOf(t, chain)); err != nil || got != who || len(bundle) == 0 {
			t.Errorf("certificate of %v, %v, want %v", got, err, who)
		}
	})

	cases := map[string]struct {
		record *clusterv1.ManagedCluster
		asks   func(identity.Cluster) identity.Cluster
		want   error
	}{
		"for another cluster":                 {asks: func(c identity.Cluster) identity.Cluster { c.Name = "store2"; return c }, want: errRequest},
		"for a name that has its as a prefix": {asks: func(c identity.Cluster) identity.Cluster { c.Name = "store1xyz"; return c }, want: errRequest},
		"for another id":                      {asks: func(c identity.Cluster) identity.Cluster { c.ID = otherID; return c }, want: errRequest},
		"once it is not accepted":             {record: managedCluster(unaccepted), want: ErrNotAccepted},
		"once it was created again":           {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Annotations[managedcluster.AnnotationClusterID] = otherID }), want: ErrStranger},
		"once its record is gone":             {record: managedCluster(func(r *clusterv1.ManagedCluster) { r.Name = "other" }), want: ErrUnknown},
	}
	for name, tc := range cases {
		t.Run("A session gets none "+name, func(t *testing.T) {
			record := tc.record
			if record == nil {
				record = managedCluster()
			}
			h := newHarness(t, record)
			who := h.identity(store1, store1ID)
			asks := who
			if tc.asks != nil {
				asks = tc.asks(who)
			}
			if _, _, err := h.Issuer().Issue(t.Context(), who, csr(t, asks)); !errors.Is(err, tc.want) {
				t.Errorf("Issue: %v, want %v", err, tc.want)
			}
		})
	}
}

func TestGateRefusesCertificateOfRecreatedCluster(t *testing.T) {
	h := newHarness(t, managedCluster(func(r *clusterv1.ManagedCluster) { r.Finalizers = nil }))
	old := h.identity(store1, store1ID)
	if err := h.client.Delete(t.Context(), h.get(store1)); err != nil {
		t.Fatal(err)
	}
	again := managedCluster(func(r *clusterv1.ManagedCluster) {
		r.Finalizers = nil
		delete(r.Annotations, managedcluster.AnnotationClusterID)
	})
	if err := h.client.Create(t.Context(), again, &client.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	h.reconcileOnce(store1)
	if err := h.Gate().Admit(t.Context(), old); !errors.Is(err, ErrStranger) {
		t.Errorf("the old certificate: %v, want %v", err, ErrStranger)
	}
	now := h.identity(store1, h.get(store1).Annotations[managedcluster.AnnotationClusterID])
	if err := h.Gate().Admit(t.Context(), now); err != nil {
		t.Errorf("the new certificate: %v", err)
	}
}
