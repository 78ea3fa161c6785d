// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// The chart's policy spokelet-hub-pods keeps the hub from a pod that somebody has begun
// and that does not bear the hub's condition.
func TestAPodThatTheHubSaysHasBegunBearsTheHubsCondition(t *testing.T) {
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		said   wire.PodStatus
	}{
		"it runs":                   {reason: "the first word of it", pod: podNamed("a"), said: wire.PodStatus{Status: running()}},
		"it has ended":              {reason: "it was quick", pod: podNamed("a"), said: wire.PodStatus{Status: succeeded()}},
		"it ran and is let go of":   {reason: "its deletion is still to be confirmed", pod: podNamed("a", deleting(30)), said: wire.PodStatus{Status: succeeded(), Gone: true}},
		"it was deleted over there": {reason: "its deletion is still to come", pod: podNamed("a"), said: wire.PodStatus{Status: running(), Gone: true, Lost: true}},
		"it ran and is refused":     {reason: "it runs on", pod: podNamed("a", inCluster), said: wire.PodStatus{Reason: "CreateFailed"}},
		"it never ran":              {reason: "nothing has begun", pod: podNamed("a"), said: wire.PodStatus{Reason: "CreateFailed"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := merge(tc.pod, tc.said, later)
			begun := status.StartTime != nil || status.HostIP != ""
			if begun && conditionOf(&status, wire.ConditionInCluster) == nil {
				t.Errorf("%s: the hub could not write it any more: %+v", tc.reason, status)
			}
		})
	}
}
