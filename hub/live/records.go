// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// Records lists and watches the clusters that the hub manages.
type Records interface {
	// Subscribe calls f for every record there is, and then for every change,
	// serially. It returns once f was called for the present ones. f does not
	// block.
	Subscribe(ctx context.Context, f func(RecordEvent)) error
}

// Record is what the hub knows of a cluster, connected or not.
type Record struct {
	Name              string
	UID               types.UID
	Labels            map[string]string
	Created           metav1.Time
	KubernetesVersion string
}

// RecordEvent is the present state of a record, or its end.
type RecordEvent struct {
	Record  Record
	Deleted bool
}

// ManagedClusters gives the hub's ManagedClusters as Records.
type ManagedClusters struct {
	Cache cache.Cache
}

// Subscribe calls f for every ManagedCluster and its changes, until ctx ends.
func (m ManagedClusters) Subscribe(ctx context.Context, f func(RecordEvent)) error {
	informer, err := m.Cache.GetInformer(ctx, &clusterv1.ManagedCluster{})
	if err != nil {
		return fmt.Errorf("managed clusters: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { notify(obj, f) },
		UpdateFunc: func(_, obj any) { notify(obj, f) },
		DeleteFunc: func(obj any) { notifyDeleted(obj, f) },
	})
	if err != nil {
		return fmt.Errorf("managed clusters: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("managed clusters: %w", context.Cause(ctx))
	}
	return nil
}

func notify(obj any, f func(RecordEvent)) {
	mc, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	f(RecordEvent{Record: newRecord(mc), Deleted: !managedcluster.IsManaged(mc)})
}

func notifyDeleted(obj any, f func(RecordEvent)) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if mc, ok := obj.(*clusterv1.ManagedCluster); ok {
		f(RecordEvent{Record: newRecord(mc), Deleted: true})
	}
}

func newRecord(mc *clusterv1.ManagedCluster) Record {
	return Record{
		Name:              mc.Name,
		UID:               mc.UID,
		Labels:            mc.Labels,
		Created:           mc.CreationTimestamp,
		KubernetesVersion: mc.Status.Version.Kubernetes,
	}
}
