// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/tunnel/identity"
)

// Summary describes a cluster, as its agent reports it.
type Summary struct {
	// KubernetesVersion of the spoke's API server, such as "v1.37.1".
	KubernetesVersion string
	// Capacity and Allocatable are the sums over the spoke's nodes.
	Capacity    corev1.ResourceList
	Allocatable corev1.ResourceList
	// Labels that the spoke offers. Only those of summaryLabels are taken over:
	// labels choose where work goes, and that choice is the hub's.
	Labels map[string]string
}

// summaryLabels are the labels that a spoke may set on its record.
var summaryLabels = []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone}

// observed is what is known of one cluster beside its record. Values are copied,
// never changed in place.
type observed struct {
	session     *identity.Cluster
	summary     *Summary
	hasConflict bool // another kube-system UID than the pinned one was refused
	isResolved  bool // a new join has ended the conflict
}

// observedStore holds what the tunnel reports, by cluster name, until the record is gone.
type observedStore struct {
	mu       sync.Mutex
	clusters map[string]observed // guarded by mu
}

func newObservedStore() *observedStore { return &observedStore{clusters: map[string]observed{}} }

func (s *observedStore) get(cluster string) observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clusters[cluster]
}

// update changes what is known of a cluster.
func (s *observedStore) update(cluster string, change func(*observed)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.clusters[cluster]
	change(&o)
	if o == (observed{}) {
		delete(s.clusters, cluster)
		return
	}
	s.clusters[cluster] = o
}

// remove drops what was known of a record that is gone. A session is kept: that
// it ends is announced, and it ends because the record is gone.
func (s *observedStore) remove(cluster string) {
	s.update(cluster, func(o *observed) { *o = observed{session: o.session} })
}
