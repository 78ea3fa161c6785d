// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package conditionrules

import (
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	workv1 "open-cluster-management.io/api/work/v1"
)

var (
	jobKind = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

// evalWellKnown evaluates a rule without an expression; ok is false if the kind
// has no such condition.
func (r *evaluation) evalWellKnown(rule *workv1.ConditionRule, obj *unstructured.Unstructured) (c metav1.Condition, ok bool) {
	switch {
	case rule.Condition == TypeHealthy:
		return r.evalHealthy(rule, obj), true
	case rule.Condition != workv1.WorkComplete:
		return metav1.Condition{}, false
	}
	switch obj.GroupVersionKind() {
	case jobKind:
		done := isJobFinished(obj.Object)
		message := "Job is not finished"
		if done {
			message = "Job is finished"
		}
		return r.newCondition(rule, done, message), true
	case podKind:
		phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
		return r.newCondition(rule, phase == "Succeeded" || phase == "Failed", "Pod is in phase "+phase), true
	}
	return metav1.Condition{}, false
}

func isJobFinished(job map[string]any) bool {
	field, _, _ := unstructured.NestedFieldNoCopy(job, "status", "conditions")
	conditions, _ := field.([]any)
	for _, entry := range conditions {
		c, _ := entry.(map[string]any)
		if (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True" {
			return true
		}
	}
	return false
}

// evalHealthy converts the result of kstatus to a condition: its status is the reason, and its message
// is used unless the rule has one.
func (r *evaluation) evalHealthy(rule *workv1.ConditionRule, obj *unstructured.Unstructured) metav1.Condition {
	result, err := status.Compute(obj)
	if err != nil {
		// kstatus quotes values in its errors.
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: string(status.UnknownStatus), Message: "Resource status is malformed"}
	}
	c := r.newCondition(rule, result.Status == status.CurrentStatus, result.Message)
	if c.Reason != ReasonEvaluated {
		return c
	}
	c.Reason = string(result.Status)
	if result.Status == status.UnknownStatus {
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// isHealthReason reports whether evalHealthy sets a reason.
func isHealthReason(reason string) bool {
	switch status.Status(reason) {
	case status.CurrentStatus, status.InProgressStatus, status.FailedStatus, status.TerminatingStatus, status.UnknownStatus:
		return true
	case status.NotFoundStatus: // set by the agent if the object does not exist
		return true
	}
	return false
}
