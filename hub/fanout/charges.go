// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/mcm"
)

// changedClusters returns the clusters whose answers are others than those in the status. If the
// parent or the hub itself has changed something, that is the reason to write, and there
// are none: clusters must not delay that, and do not pay for it.
func (s *storedStatus) changedClusters(p parent, next *summary, outcomes []clusterOutcome, works map[string]*v1alpha1.Work) (clusters []string) {
	if s.summary.generation != next.generation || s.summary.forbidden != next.forbidden || len(s.summary.clusters) != len(next.clusters) {
		return nil
	}
	for i, is := range next.clusters {
		was := s.summary.clusters[i]
		switch w := works[is.Name]; {
		case was.Name != is.Name, was != is && outcomes[i].isHubs:
			return nil
		case was != is, p.hasResults && w != nil && w.Annotations[mcm.AnnotationDigest] != s.results[is.Name].digest:
			clusters = append(clusters, is.Name)
		}
	}
	return clusters
}

// selectPayers returns those of the clusters that may have a status written, or how long it is
// until there is one. The answers of the others are in that status, too, at no cost: it is
// not written for them, and nobody goes into debt because others answer.
func (k *reconciler) selectPayers(clusters []string) (payers []string, wait time.Duration) {
	for _, cluster := range clusters {
		switch left := k.cfg.Writes.Wait(cluster); {
		case left == 0:
			payers = append(payers, cluster)
		case wait == 0:
			wait = left
		default:
			wait = min(wait, left)
		}
	}
	if len(payers) > 0 {
		return payers, 0
	}
	return nil, wait
}

// chargeWrites has clusters pay for a status, in equal parts. However little of it has changed,
// the API server stores the whole object.
func (k *reconciler) chargeWrites(payers []string, p parent, st *storedStatus, s summary) error {
	if len(payers) == 0 || k.cfg.Writes == nil {
		return nil
	}
	raw, err := json.Marshal([]any{p.stored, p.status(s, metav1.Now())})
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", p.kind, p.object.GetName(), err)
	}
	part := (len(raw)+mcm.SizeOf(p.object)+st.size)/len(payers) + 1
	for _, cluster := range payers {
		k.cfg.Writes.Spend(cluster, int64(part))
	}
	return nil
}
