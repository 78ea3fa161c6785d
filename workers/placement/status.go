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
	"github.com/spokelet/spokelet/workers/truncate"
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

// Status returns the status of a work in its cluster. It is ready if the cluster has applied all
// manifests and reports that it serves the revision; a condition of another revision, or from before
// the revision was applied, does not count. The image is the one that all pods of the
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
	s.Message = truncate.Text(notReadyReason(w, says, revision), maxMessage)
	s.Ready = s.Message == ""
	return s
}

// notReadyReason returns why a work is not ready, or an empty string.
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

// isRevision distinguishes a revision from the text of an error.
func isRevision(text string) bool {
	return len(text) == revisionDigits && strings.Trim(text, "0123456789abcdef") == ""
}

// applyFailures names the first manifest that the cluster could not apply, and counts the others.
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
	return fmt.Sprintf("%s (and %d more)", truncate.Text(first, maxMessage), n-1)
}

// deploymentFailure returns why the Deployment cannot be read; its other conditions are outdated
// then.
func deploymentFailure(w *workv1.ManifestWork) string {
	c := meta.FindStatusCondition(deploymentCondition(w).Conditions, workv1.ManifestAvailable)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	return "Deployment: " + cmp.Or(c.Message, c.Reason)
}

// availableReplicas returns how many pods of the Deployment are available.
func availableReplicas(w *workv1.ManifestWork) int64 {
	for _, v := range deploymentCondition(w).StatusFeedbacks.Values {
		if v.Name == feedbackAvailable && v.Value.Integer != nil {
			return *v.Value.Integer
		}
	}
	return 0
}

// deploymentCondition returns the status of the Deployment; a work has one.
func deploymentCondition(w *workv1.ManifestWork) workv1.ManifestCondition {
	for _, m := range w.Status.ResourceStatus.Manifests {
		if m.ResourceMeta.Group == "apps" && m.ResourceMeta.Resource == "deployments" {
			return m
		}
	}
	return workv1.ManifestCondition{}
}
