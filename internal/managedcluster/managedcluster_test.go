// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package managedcluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is one of Spokelet's that is accepted, as changes leave it.
func record(changes ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	r := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "store1", Annotations: map[string]string{AnnotationManaged: "true"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

func TestManagedClusterPredicates(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	type says struct{ Managed, Accepted, Selectable, Detaching bool }
	for name, tc := range map[string]struct {
		reason string
		record *clusterv1.ManagedCluster
		want   says
	}{
		"An accepted record": {
			reason: "works are made for it",
			record: record(), want: says{Managed: true, Accepted: true, Selectable: true},
		},
		"A record of another controller": {
			reason: "it is not Spokelet's to serve",
			record: record(func(r *clusterv1.ManagedCluster) { r.Annotations = nil }),
		},
		"A record that nobody has accepted": {
			reason: "its cluster may not connect",
			record: record(func(r *clusterv1.ManagedCluster) { r.Spec.HubAcceptsClient = false }),
			want:   says{Managed: true},
		},
		"A deleted record": {
			reason: "its sessions were cut",
			record: record(func(r *clusterv1.ManagedCluster) { r.DeletionTimestamp = new(metav1.NewTime(now)) }),
			want:   says{Managed: true},
		},
		"A record that is being detached": {
			reason: "what there is still has to be cleaned up, and nothing new may come",
			record: record(func(r *clusterv1.ManagedCluster) { MarkDetaching(r, now) }),
			want:   says{Managed: true, Accepted: true, Detaching: true},
		},
		"A record with a taint of somebody else": {
			reason: "what it keeps off is decided by Placements",
			record: record(func(r *clusterv1.ManagedCluster) {
				r.Spec.Taints = []clusterv1.Taint{{Key: "gpu", Effect: clusterv1.TaintEffectNoSelect}}
			}),
			want: says{Managed: true, Accepted: true, Selectable: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := says{IsManaged(tc.record), IsAccepted(tc.record), IsSelectable(tc.record), IsDetaching(tc.record)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		})
	}
}

func TestMarkDetachingIsIdempotent(t *testing.T) {
	first := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	r := record(func(r *clusterv1.ManagedCluster) {
		r.Spec.Taints = []clusterv1.Taint{{Key: "gpu", Effect: clusterv1.TaintEffectNoSelect}}
	})
	before := r.DeepCopy()
	MarkDetaching(r, first)
	MarkDetaching(r, first.Add(time.Hour))
	if len(r.Spec.Taints) != 2 || !r.Spec.Taints[1].TimeAdded.Time.Equal(first) {
		t.Errorf("taints %+v, want that of somebody else and one since the first time", r.Spec.Taints)
	}
	UnmarkDetaching(r)
	if diff := cmp.Diff(before, r); diff != "" {
		t.Error(diff)
	}
}
