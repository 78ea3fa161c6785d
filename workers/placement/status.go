// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
)

const (
	// maxMessage bounds what a cluster says: the status of a bundle has one for each.
	maxMessage = 1024
	// feedbackAvailable is the name of the value that the agent reports.
	feedbackAvailable = "AvailableReplicas"

	messageUnsent     = "nothing was sent to the cluster yet"
	messageUnanswered = "the cluster has not answered yet"
	messageLeaving    = "it is being removed from the cluster"
)

// Status reads what a cluster says of a work. It is ready if it has applied all of what it
// was told and serves that revision, by its own words; a condition of another revision, or
// of before that revision was applied, is none. The image is the one that all pods of the
// cluster have, of whatever revision.
func Status(w *workv1.ManifestWork, revision string) bundlev1alpha1.ClusterStatus {
	if w == nil {
		return bundlev1alpha1.ClusterStatus{Message: messageUnsent}
	}
	s := bundlev1alpha1.ClusterStatus{Name: w.Namespace, AvailableReplicas: availableReplicas(w)}
	says := parseAnswer(w)
	if says.served {
		s.Image = says.image
	}
	s.Message = truncate(notReadyReason(w, says, revision))
	s.Ready = s.Message == ""
	return s
}

// notReadyReason says what keeps a work from being ready; empty: nothing.
func notReadyReason(w *workv1.ManifestWork, says servedAnswer, revision string) string {
	applied := meta.FindStatusCondition(w.Status.Conditions, workv1.WorkApplied)
	switch {
	case !w.DeletionTimestamp.IsZero():
		return messageLeaving
	case applied == nil:
		return messageUnanswered
	case applied.ObservedGeneration != w.Generation && says.revision != revision:
		return messageUnanswered // of what was asked for before
	case applied.Status != metav1.ConditionTrue:
		return applyFailures(w, applied.Message)
	case says.failure != "":
		return says.failure
	case says.revision != revision || says.generation != applied.ObservedGeneration:
		return messageUnanswered
	case deploymentFailure(w) != "":
		return deploymentFailure(w)
	case !says.served:
		return cmp.Or(says.reason, "not all pods are available")
	}
	return ""
}

// servedAnswer are what the rule of the work says.
type servedAnswer struct {
	served                  bool
	generation              int64
	revision, image, reason string
	// failure is why the rule says nothing.
	failure string
}

// parseAnswer reads the condition of the rule. The work's repeats that of the Deployment, and
// is there when the status of a large work has no room for its manifests.
func parseAnswer(w *workv1.ManifestWork) servedAnswer {
	c := meta.FindStatusCondition(w.Status.Conditions, ConditionServed)
	if c == nil {
		return servedAnswer{}
	}
	says := servedAnswer{served: c.Status == metav1.ConditionTrue, generation: c.ObservedGeneration}
	var rest string
	says.revision, rest, _ = strings.Cut(c.Message, " ")
	says.image, says.reason, _ = strings.Cut(rest, ": ")
	if !isRevision(says.revision) {
		return servedAnswer{failure: "the cluster cannot tell how the Deployment is: " + c.Message}
	}
	return says
}

// isRevision tells a revision from the words of an error.
func isRevision(text string) bool {
	return len(text) == revisionDigits && strings.Trim(text, "0123456789abcdef") == ""
}

// applyFailures name the first manifest that the cluster did not take, and how many others.
func applyFailures(w *workv1.ManifestWork, otherwise string) string {
	first, n := "", 0
	for _, m := range w.Status.ResourceStatus.Manifests {
		c := meta.FindStatusCondition(m.Conditions, workv1.ManifestApplied)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("%s %s: %s", m.ResourceMeta.Kind, m.ResourceMeta.Name, c.Message)
		}
	}
	switch n {
	case 0:
		return cmp.Or(otherwise, "the cluster could not apply it")
	case 1:
		return first
	}
	return fmt.Sprintf("%s (and %d more)", truncate(first), n-1)
}

// deploymentFailure says that the Deployment cannot be seen: what was said of it before still stands
// then.
func deploymentFailure(w *workv1.ManifestWork) string {
	c := meta.FindStatusCondition(deploymentCondition(w).Conditions, workv1.ManifestAvailable)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	return "Deployment: " + cmp.Or(c.Message, c.Reason)
}

// availableReplicas is how many pods of the Deployment are.
func availableReplicas(w *workv1.ManifestWork) int64 {
	for _, v := range deploymentCondition(w).StatusFeedbacks.Values {
		if v.Name == feedbackAvailable && v.Value.Integer != nil {
			return *v.Value.Integer
		}
	}
	return 0
}

// deploymentCondition returns what is said of the Deployment; a work has one.
func deploymentCondition(w *workv1.ManifestWork) workv1.ManifestCondition {
	for _, m := range w.Status.ResourceStatus.Manifests {
		if m.ResourceMeta.Group == "apps" && m.ResourceMeta.Resource == "deployments" {
			return m
		}
	}
	return workv1.ManifestCondition{}
}

func truncate(message string) string {
	const more = "..."
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}
