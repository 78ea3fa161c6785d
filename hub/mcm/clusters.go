// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"maps"
	"slices"
	"sync"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
)

// clusterState is what is known of one.
type clusterState struct {
	exists, managed, accepted bool
}

func (c clusterState) isServed() bool { return c.exists && c.managed && c.accepted }

// clusterIndex are the records, and which objects need which.
type clusterIndex struct {
	mu sync.Mutex
	// All below are guarded by mu.
	all   map[string]clusterState
	needs index[string]
}

func newClusterIndex() *clusterIndex {
	return &clusterIndex{all: map[string]clusterState{}, needs: newIndex[string]()}
}

func (c *clusterIndex) get(name string) clusterState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[name]
}

// set stores the state of a cluster, and reports whether it has changed.
func (c *clusterIndex) set(name string, is clusterState) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.all[name] != is
	if is.exists {
		c.all[name] = is
	} else {
		delete(c.all, name)
	}
	return changed
}

// setCluster records which cluster an object is for.
func (c *clusterIndex) setCluster(r objectKey, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needs.set(r, name)
}

func (c *clusterIndex) delete(r objectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needs.delete(r)
}

// objectsOf are the objects for a cluster.
func (c *clusterIndex) objectsOf(name string) []objectKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.needs.list(name)
}

// allObjects are the objects for any cluster.
func (c *clusterIndex) allObjects() []objectKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.needs.keys))
}

// handleCluster reconciles the objects of a cluster that was created, changed or deleted.
func (c *Controller) handleCluster(obj client.Object, e eventType) {
	record, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	is := clusterState{
		exists: true, managed: managedcluster.IsManaged(record),
		accepted: record.Spec.HubAcceptsClient && record.DeletionTimestamp == nil,
	}
	if e == deletedEvent {
		is = clusterState{}
	}
	if !c.clusters.set(record.Name, is) {
		return
	}
	c.requeueObjects(record.Name, c.clusters.objectsOf(record.Name))
}

// requeueObjects reconciles objects of a cluster, and completes its sources after that.
func (c *Controller) requeueObjects(cluster string, objects []objectKey) {
	c.mu.Lock()
	left := c.incomplete[cluster]
	if left == nil {
		left = map[objectKey]struct{}{}
		c.incomplete[cluster] = left
	}
	for _, r := range objects {
		left[r] = struct{}{}
	}
	c.mu.Unlock()
	for _, r := range objects {
		c.queue.Add(r)
	}
	c.completeSources()
}

// handleSession reconciles the objects of a cluster that has connected or disconnected.
func (c *Controller) handleSession(name string, connected bool) {
	if connected {
		// Its sources may be new: Sync forgets a cluster that is no more.
		c.views.republish(name)
		c.requeueObjects(name, c.publishedTo(name))
		return
	}
	for _, r := range c.clusters.objectsOf(name) {
		c.queue.Add(r)
	}
}
