// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recordEvent reports the changes of a work that somebody may wait for: it fails, for
// another reason, or no longer. That a work is applied at once, as nearly all are,
// is in its status; an event for each would double what a thousand works write.
func (w *Works) recordEvent(work client.Object, before, after []metav1.Condition) {
	was, is := meta.FindStatusCondition(before, conditionApplied), meta.FindStatusCondition(after, conditionApplied)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	level := corev1.EventTypeWarning
	switch {
	case is.Status == metav1.ConditionFalse:
	case was != nil && was.Status == metav1.ConditionFalse:
		level = corev1.EventTypeNormal
	default:
		return
	}
	w.events.Eventf(work, nil, level, is.Reason, "Apply", "%.1000s", is.Message)
}
