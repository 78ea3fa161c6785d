// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workconvert

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// ManifestWorkFinalizer holds a ManifestWork until its objects are gone from
	// the spoke.
	ManifestWorkFinalizer = workv1.ManifestWorkFinalizer
	// MaxManifestWorkName is the length of the longest name that an
	// AppliedManifestWork can be named after: "<hub hash>-<name>".
	MaxManifestWorkName = 253 - 2*sha256.Size - 1
)

// HubHash is what names a hub in its AppliedManifestWorks: the SHA-256 of the URL
// of its API server, in lower-case hex.
func HubHash(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// FromManifestWork is what an agent is asked for by a ManifestWork; with healthy
// it is asked for the health of every manifest too. The result shares memory with
// mw.
func FromManifestWork(mw *workv1.ManifestWork, hubHash string, healthy bool) wire.Work {
	w := wire.Work{
		Generation: mw.Generation, Deleting: mw.DeletionTimestamp != nil,
		HubHash: hubHash, Labels: mw.Labels, Healthy: healthy, Spec: mw.Spec,
	}
	setSuspensionAndDrift(&w, mw.Annotations, mw.Status.Conditions)
	if w.Deleting && !w.Suspended {
		// What is to go is known in the spoke, or was never there.
		w.Spec = workv1.ManifestWorkSpec{DeleteOption: mw.Spec.DeleteOption}
	}
	return w
}

// MergeManifestWork returns the status of a ManifestWork after a report. The
// arguments are not changed.
func MergeManifestWork(old workv1.ManifestWorkStatus, r wire.WorkStatus, now metav1.Time) workv1.ManifestWorkStatus {
	var next workv1.ManifestWorkStatus
	before := newManifestIndex(old.ResourceStatus.Manifests, metaOf, metaWithoutOrdinal)
	for _, m := range r.Manifests {
		next.ResourceStatus.Manifests = append(next.ResourceStatus.Manifests,
			mergeManifest(before.find(m.ResourceMeta), m, r.ObservedGeneration, now))
	}
	kept := ruleTypes(next.ResourceStatus.Manifests, r.ObservedGeneration)
	work := conditionMerger{now: now, isObsolete: func(c metav1.Condition) bool {
		switch {
		case c.Type == workv1.WorkDeleting, c.Type == TypeSharedResources, isSuspension(c), wire.IsDriftReport(c):
			return true
		case !isFromRule(c):
			return false
		}
		_, still := kept[c.Type]
		return !still || c.ObservedGeneration != r.ObservedGeneration
	}}
	next.Conditions = work.merge(old.Conditions, r.Conditions)
	return next
}

// mergeManifest merges the report on one manifest of a work.
func mergeManifest(old, next workv1.ManifestCondition, generation int64, now metav1.Time) workv1.ManifestCondition {
	out := workv1.ManifestCondition{ResourceMeta: next.ResourceMeta, StatusFeedbacks: next.StatusFeedbacks}
	if _, read := findCondition(next.Conditions, TypeFeedbackSynced); !read && len(next.StatusFeedbacks.Values) == 0 {
		out.StatusFeedbacks = old.StatusFeedbacks // nobody looked: what was seen last stands
	}
	changed := !equality.Semantic.DeepEqual(old.StatusFeedbacks.Values, out.StatusFeedbacks.Values)
	available, _ := findCondition(next.Conditions, workv1.ManifestAvailable)
	seen := available.Status == metav1.ConditionTrue
	m := conditionMerger{
		now: now,
		// A rule that could not look at the object says what it said before.
		isObsolete: func(c metav1.Condition) bool {
			return isFromRule(c) && (seen || c.ObservedGeneration != generation) || wire.IsDriftReport(c)
		},
		isReplaced: func(before, c metav1.Condition) bool {
			switch c.Type {
			case workv1.ManifestApplied:
				return before.ObservedGeneration != c.ObservedGeneration
			case TypeFeedbackSynced:
				return changed
			default:
				return false
			}
		},
	}
	out.Conditions = m.merge(old.Conditions, next.Conditions)
	return out
}

// ruleTypes are the types of the conditions that rules set on manifests.
func ruleTypes(manifests []workv1.ManifestCondition, generation int64) map[string]struct{} {
	out := map[string]struct{}{}
	for i := range manifests {
		for _, c := range manifests[i].Conditions {
			if isFromRule(c) && c.ObservedGeneration == generation {
				out[c.Type] = struct{}{}
			}
		}
	}
	return out
}

// isFromRule tells a condition that a rule set, on a manifest or on a work, by its
// reason as OCM does; Healthy of a manifest has the statuses of kstatus.
func isFromRule(c metav1.Condition) bool {
	if strings.HasPrefix(c.Reason, "ConditionRule") {
		return true
	}
	if c.Type != TypeHealthy {
		return false
	}
	switch c.Reason {
	case "Current", "InProgress", "Failed", "Terminating", "NotFound", "Unknown":
		return true
	default:
		return false
	}
}

func metaOf(m workv1.ManifestCondition) workv1.ManifestResourceMeta { return m.ResourceMeta }

func metaWithoutOrdinal(m workv1.ManifestResourceMeta) workv1.ManifestResourceMeta {
	m.Ordinal = 0
	return m
}
