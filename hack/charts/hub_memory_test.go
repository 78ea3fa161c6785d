// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// A hub without a limit takes the memory of its node; one that does not know its
// limit is ended at it.
func TestTheHubKnowsItsMemoryLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		values []string
		limit  string
		target string
	}{
		"by default": {"views have bounds that fit", nil, "1Gi", "921MiB"},
		"in Mi":      {"it is nine tenths", []string{"resources.limits.memory=600Mi"}, "600Mi", "540MiB"},
		"in bytes":   {"what is not understood is not guessed", []string{"resources.limits.memory=600000000"}, "600M", ""},
		"without":    {"it is theirs to take away", []string{"resources.limits=null"}, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, object := range render(t, "spokelet-hub", tc.values...) {
				if object.GetKind() != "Deployment" {
					continue
				}
				var deployment appsv1.Deployment
				convert(t, object, &deployment)
				container := deployment.Spec.Template.Spec.Containers[0]
				target := ""
				for _, env := range container.Env {
					if env.Name == "GOMEMLIMIT" {
						target = env.Value
					}
				}
				if limit := container.Resources.Limits.Memory().String(); limit != tc.limit || target != tc.target {
					t.Errorf("limit %s and target %q, want %s and %q: %s", limit, target, tc.limit, tc.target, tc.reason)
				}
				return
			}
			t.Error("the chart has no Deployment")
		})
	}
}
