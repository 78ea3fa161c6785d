// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// A process without a limit takes the memory of its node; one that does not know its
// limit is ended at it.
func TestTheHubKnowsItsMemoryLimit(t *testing.T) {
	knowsItsLimit(t, "spokelet-hub", "1Gi", "921MiB")
}

func TestTheAgentKnowsItsMemoryLimit(t *testing.T) {
	knowsItsLimit(t, "spokelet-agent", "512Mi", "460MiB")
}

// What Helm may use beside the agent is in the same container.
func TestTheAgentLeavesMemoryToHelm(t *testing.T) {
	const charts = "helm.charts={https://charts.example.com}"
	for name, tc := range map[string]struct {
		reason string
		values []string
		target string
	}{
		"by default":      {"two processes may run", nil, "115MiB"},
		"in Gi":           {"the limit is the owner's to raise", []string{"resources.limits.memory=1Gi", "helm.memory=256Mi"}, "460MiB"},
		"without a limit": {"nothing is to be shared", []string{"resources.limits=null"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, target := memoryOf(t, "spokelet-agent", append(tc.values, charts)...); target != tc.target {
				t.Errorf("target %q, want %q: %s", target, tc.target, tc.reason)
			}
		})
	}
	checkRefused(t, "the agent would be ended for what Helm takes", "does not hold twice helm.memory (256Mi)", "spokelet-agent", "--set", charts, "--set", "helm.memory=256Mi")
}

func knowsItsLimit(t *testing.T, chart, limit, target string) {
	t.Helper()
	for name, tc := range map[string]struct {
		reason string
		values []string
		limit  string
		target string
	}{
		"by default": {"it is above what the benchmarks measure", nil, limit, target},
		"in Mi":      {"it is nine tenths", []string{"resources.limits.memory=600Mi"}, "600Mi", "540MiB"},
		"in bytes":   {"what is not understood is not guessed", []string{"resources.limits.memory=600000000"}, "600M", ""},
		"without":    {"it is theirs to take away", []string{"resources.limits=null"}, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit, target := memoryOf(t, chart, tc.values...)
			if limit != tc.limit || target != tc.target {
				t.Errorf("limit %s and target %q, want %s and %q: %s", limit, target, tc.limit, tc.target, tc.reason)
			}
		})
	}
}

// memoryOf is the limit of a chart's process, and what the process is told to try.
func memoryOf(t *testing.T, chart string, values ...string) (limit, target string) {
	t.Helper()
	var deployment appsv1.Deployment
	if !find(t, chart, "Deployment", &deployment, values...) {
		t.Fatal("the chart has no Deployment")
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, env := range container.Env {
		if env.Name == "GOMEMLIMIT" {
			target = env.Value
		}
	}
	return container.Resources.Limits.Memory().String(), target
}
