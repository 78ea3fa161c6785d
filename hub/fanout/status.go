// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
)

const (
	// maxNamed is how many clusters a reason names.
	maxNamed = 10
	// maxReason bounds what is kept of a Work's reason, in bytes, maxReasons what is kept
	// of all.
	maxReason  = 256
	maxReasons = 256 << 10
)

// clusterOutcome is how a cluster is.
type clusterOutcome struct {
	v1alpha1.ClusterResult

	// pending until it has answered, or cannot.
	pending bool
	// isHubs: the outcome is one of the hub itself, not the cluster's result.
	isHubs bool
}

// newOutcome is what a Work shows of what it asks now: the cluster's word on it, or what the
// hub says while there is none.
func newOutcome(w *v1alpha1.Work) clusterOutcome {
	o := clusterOutcome{ClusterResult: v1alpha1.ClusterResult{Name: w.Namespace, Type: w.Status.Type, Reason: w.Status.Reason}}
	answered := w.Status.ObservedGeneration == w.Generation
	if !answered && w.Status.ObservedGeneration != 0 {
		o.Type, o.Reason = "", "" // it asked something else
	}
	o.pending = o.Type != v1alpha1.WorkFailed && !answered
	return o
}

// summary is a status without results and times.
type summary struct {
	kind       v1alpha1.WorkStatusType
	reason     string
	clusters   []v1alpha1.ClusterResult
	forbidden  int32
	generation int64
}

// equal reports whether nothing is to be written.
func (s *summary) equal(o *summary) bool {
	return s.kind == o.kind && s.reason == o.reason && s.generation == o.generation && s.forbidden == o.forbidden && slices.Equal(s.clusters, o.clusters)
}

// summarize combines the outcomes of all clusters, which are in the order of their names.
// Answered Works of mode Periodic show Processing, and so does their parent.
func summarize(outcomes []clusterOutcome, generation int64) summary {
	s := summary{kind: v1alpha1.WorkCompleted, generation: generation}
	var failed, waiting []string
	// The same for each, so that the reason of one shortens no other's.
	most := min(maxReason, maxReasons/max(1, len(outcomes)))
	for _, o := range outcomes {
		switch {
		case o.Type == v1alpha1.WorkFailed:
			failed = append(failed, o.Name+": "+truncate(o.Reason, most))
		case o.pending && o.Reason != "":
			waiting = append(waiting, o.Name+": "+truncate(o.Reason, most))
		case o.pending:
			waiting = append(waiting, o.Name+": not answered yet")
		case o.Type == v1alpha1.WorkProcessing:
			s.kind = o.Type
		}
		r := o.ClusterResult
		r.Reason = truncate(r.Reason, most)
		s.clusters = append(s.clusters, r)
	}
	switch {
	case len(waiting) > 0:
		s.kind = v1alpha1.WorkProcessing
	case len(failed) > 0:
		s.kind = v1alpha1.WorkFailed
	case len(outcomes) == 0:
		s.reason = "no cluster is selected"
	}
	if s.reason == "" {
		s.reason = joinFirst(append(failed, waiting...), "; ")
	}
	return s
}

// joinFirst joins the first of some, and counts the others.
func joinFirst(all []string, separator string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(all[:maxNamed], separator), separator, len(all)-maxNamed)
}

// truncate shortens a text to so many bytes, and shows that it did.
func truncate(reason string, most int) string {
	const mark = "..."
	switch {
	case len(reason) <= most:
		return reason
	case most < len(mark):
		return ""
	}
	return strings.ToValidUTF8(reason[:most-len(mark)], "") + mark
}
