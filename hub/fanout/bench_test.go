// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// full is a cache in which a WorkSet has all its Works, and nothing is to be written.
type full struct {
	client.Client

	set      *v1alpha1.WorkSet
	clusters []clusterv1.ManagedCluster
	works    []v1alpha1.Work
}

func (f *full) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s, ok := o.(*v1alpha1.WorkSet); ok {
		f.set.DeepCopyInto(s)
	}
	return nil
}

func (f *full) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.WorkList:
		l.Items = f.works
	case *clusterv1.ManagedClusterList:
		l.Items = f.clusters
	}
	return nil
}

// BenchmarkReconcileThousandClusters is what each look at a large WorkSet costs when
// nothing has changed; there is one a second at most while clusters answer.
func BenchmarkReconcileThousandClusters(b *testing.B) {
	f := &full{set: newSet()}
	var results []clusterOutcome
	for i := range 1000 {
		c := cluster(fmt.Sprintf("store-%04d", i))
		w := newWork(newWorkSetParent(f.set), alice, registered, c.Name)
		w.Generation = 1
		w.Status = v1alpha1.WorkStatus{Type: v1alpha1.WorkCompleted, ObservedGeneration: 1}
		f.clusters, f.works = append(f.clusters, *c), append(f.works, *w)
		results = append(results, newOutcome(w))
	}
	s := summarize(results, 1)
	f.set.Status = v1alpha1.WorkSetStatus{Status: s.kind, Clusters: s.clusters, ObservedGeneration: s.generation}
	authors := &requester.Registration{}
	authors.Set(registered)
	c, err := New(Config{
		Client: f, Live: f, Access: &denied{}, Logger: logr.Discard(),
		Rights: rbacwatch.NewRechecker(nil, logr.Discard()), Authors: authors,
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if result, err := c.reconcilers[0].Reconcile(b.Context(), request); err != nil || !result.IsZero() {
			b.Fatalf("there is something to do: %+v, %v", result, err)
		}
	}
}
