// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func keyOf(name types.NamespacedName) wire.WorkKey {
	return wire.WorkKey{Dialect: wire.DialectMulticluster, Namespace: name.Namespace, Name: name.Name}
}

// encode maps a Work to the canonical form.
func encode(work *v1alpha1.Work) (resource.Resource, error) {
	out := wire.Work{Generation: work.Generation, Deleting: work.DeletionTimestamp != nil}
	if !out.Deleting {
		for _, m := range work.Spec.Workload.Manifests {
			out.Spec.Workload.Manifests = append(out.Spec.Workload.Manifests, workv1.Manifest{RawExtension: m.RawExtension})
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return resource.Resource{}, fmt.Errorf("encode work: %w", err)
	}
	name := types.NamespacedName{Namespace: work.Namespace, Name: work.Name}
	return resource.Resource{Key: keyOf(name).String(), UID: string(work.UID), Generation: work.Generation, Body: body}, nil
}

// reported names the condition types that we write; others are somebody else's.
func reported() []string {
	return []string{"Applied", "Available", "Healthy", "Deleting", trimmedType}
}

// refusal is the status of a work that cannot be sent.
func refusal(work *v1alpha1.Work, err error) report {
	return report{uid: work.UID, status: wire.WorkStatus{
		ObservedGeneration: work.Generation,
		Conditions: []metav1.Condition{{
			Type: "Applied", Status: metav1.ConditionFalse, Reason: "AppliedWorkFailed",
			Message: "Failed to apply work: " + err.Error(), ObservedGeneration: work.Generation,
		}},
	}, refused: true}
}

// merge returns the status of a work after a report. What did not change keeps
// its transition time, whatever time the spoke gives.
func merge(old v1alpha1.WorkStatus, r report, now metav1.Time) v1alpha1.WorkStatus {
	next := v1alpha1.WorkStatus{Conditions: mergeConditions(old.Conditions, r.status.Conditions, reported(), now)}
	if r.refused {
		next.ManifestConditions = old.ManifestConditions
		return next
	}
	before := newMatcher(old.ManifestConditions)
	for _, m := range r.status.Manifests {
		id := identifier(m.ResourceMeta)
		next.ManifestConditions = append(next.ManifestConditions, v1alpha1.ManifestCondition{
			Identifier: id, Conditions: mergeConditions(before.find(id), m.Conditions, nil, now),
		})
	}
	return next
}

func identifier(m workv1.ManifestResourceMeta) v1alpha1.ResourceIdentifier {
	return v1alpha1.ResourceIdentifier{
		Ordinal: int(m.Ordinal), Group: m.Group, Version: m.Version, Kind: m.Kind,
		Resource: m.Resource, Namespace: m.Namespace, Name: m.Name,
	}
}

// mergeConditions puts next in the place of what old has of the same type. Old
// ones that are not reported any more go if they are ours, and stay otherwise;
// nil ours means that all are.
func mergeConditions(old, next []metav1.Condition, ours []string, now metav1.Time) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(old)+len(next))
	for _, c := range old {
		i := slices.IndexFunc(next, func(n metav1.Condition) bool { return n.Type == c.Type })
		switch {
		case i >= 0:
			n := next[i]
			n.LastTransitionTime = now
			if n.Status == c.Status {
				n.LastTransitionTime = c.LastTransitionTime
			}
			out = append(out, n)
		case ours != nil && !slices.Contains(ours, c.Type):
			out = append(out, c)
		}
	}
	for _, n := range next {
		if !slices.ContainsFunc(old, func(c metav1.Condition) bool { return c.Type == n.Type }) {
			n.LastTransitionTime = now
			out = append(out, n)
		}
	}
	return out
}

// matcher finds the conditions of a manifest by its identity, then by its
// identity without ordinal where only one has it.
type matcher struct {
	exact, loose map[v1alpha1.ResourceIdentifier][]metav1.Condition
}

func newMatcher(list []v1alpha1.ManifestCondition) matcher {
	m := matcher{
		exact: make(map[v1alpha1.ResourceIdentifier][]metav1.Condition, len(list)),
		loose: make(map[v1alpha1.ResourceIdentifier][]metav1.Condition, len(list)),
	}
	for _, c := range list {
		m.exact[c.Identifier] = c.Conditions
		id := c.Identifier
		id.Ordinal = 0
		if _, twice := m.loose[id]; twice {
			m.loose[id] = nil
			continue
		}
		m.loose[id] = c.Conditions
	}
	return m
}

func (m matcher) find(id v1alpha1.ResourceIdentifier) []metav1.Condition {
	if c, ok := m.exact[id]; ok {
		return c
	}
	id.Ordinal = 0
	return m.loose[id]
}

// observed is the highest generation that a status speaks of.
func observed(s v1alpha1.WorkStatus) int64 {
	var highest int64
	for _, c := range s.Conditions {
		if slices.Contains(reported(), c.Type) {
			highest = max(highest, c.ObservedGeneration)
		}
	}
	return highest
}
