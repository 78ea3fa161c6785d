// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"maps"
	"slices"
	"sync"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/managedcluster"
)

// cluster is what is known of one.
type cluster struct {
	exists, managed, accepted bool
}

func (c cluster) serves() bool { return c.exists && c.managed && c.accepted }

// clusters are the records, and which objects need which.
type clusters struct {
	mu sync.Mutex
	// All below are guarded by mu.
	all   map[string]cluster
	needs map[ref]string
	by    map[string]map[ref]struct{}
}

func newClusters() *clusters {
	return &clusters{all: map[string]cluster{}, needs: map[ref]string{}, by: map[string]map[ref]struct{}{}}
}

func (c *clusters) get(name string) cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[name]
}

// set keeps what a cluster is now, and tells whether it was another.
func (c *clusters) set(name string, is cluster) (changed bool) {
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

// need records which cluster an object is for.
func (c *clusters) need(r ref, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.needs[r]; ok && old == name {
		return
	}
	c.leave(r)
	c.needs[r] = name
	if c.by[name] == nil {
		c.by[name] = map[ref]struct{}{}
	}
	c.by[name][r] = struct{}{}
}

// leave drops what an object needs; c.mu is held.
func (c *clusters) leave(r ref) {
	old, ok := c.needs[r]
	if !ok {
		return
	}
	delete(c.needs, r)
	delete(c.by[old], r)
	if len(c.by[old]) == 0 {
		delete(c.by, old)
	}
}

func (c *clusters) remove(r ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(r)
}

// of are the objects for a cluster.
func (c *clusters) of(name string) []ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.by[name]))
}

// everyone are the objects for any cluster.
func (c *clusters) everyone() []ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.needs))
}

// clusterChanged looks again at the objects of a cluster that has come, gone or changed.
func (c *Controller) clusterChanged(obj client.Object, e event) {
	record, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	is := cluster{
		exists: true, managed: managedcluster.Managed(record),
		accepted: record.Spec.HubAcceptsClient && record.DeletionTimestamp == nil,
	}
	if e == deleted {
		is = cluster{}
	}
	if !c.clusters.set(record.Name, is) {
		return
	}
	c.lookAgain(record.Name, c.clusters.of(record.Name))
}

// lookAgain looks again at objects of a cluster, and completes its sources after that.
func (c *Controller) lookAgain(cluster string, objects []ref) {
	c.mu.Lock()
	left := c.incomplete[cluster]
	if left == nil {
		left = map[ref]struct{}{}
		c.incomplete[cluster] = left
	}
	for _, r := range objects {
		left[r] = struct{}{}
	}
	c.mu.Unlock()
	for _, r := range objects {
		c.queue.Add(r)
	}
	c.complete()
}

// session looks again at the objects of a cluster that has connected or is away.
func (c *Controller) session(name string, connected bool) {
	if connected {
		// Its sources may be new: Sync forgets a cluster that is no more.
		c.views.republish(name)
		c.lookAgain(name, c.unanswered(name))
		return
	}
	for _, r := range c.clusters.of(name) {
		c.queue.Add(r)
	}
}
