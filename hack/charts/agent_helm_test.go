// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// helmConfig is what the agent's file says of Helm.
type helmConfig struct {
	Charts []string          `json:"charts"`
	Memory resource.Quantity `json:"memory"`
}

func helmConfigOf(t *testing.T, values ...string) helmConfig {
	t.Helper()
	var files corev1.ConfigMap
	if !find(t, "spokelet-agent", "ConfigMap", &files, values...) {
		t.Fatal("the chart has no ConfigMap")
	}
	var file struct {
		Helm helmConfig `json:"helm"`
	}
	if err := yaml.Unmarshal([]byte(files.Data["config.yaml"]), &file); err != nil {
		t.Fatal(err)
	}
	return file.Helm
}

func TestWhereHelmChartsComeFromIsInTheAgentsFile(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		charts []string
		memory string
	}{
		"by default": {reason: "nothing is read unless the owner says so", memory: "0"},
		"a server": {
			reason: "with a port and a path", values: []string{"helm.charts={https://charts.example.com:8443/stable/}"},
			charts: []string{"https://charts.example.com:8443/stable/"}, memory: "192Mi",
		},
		"a registry, and one without TLS": {
			reason: "a host alone is all that it has", values: []string{"helm.charts={oci://registry.example.com/charts,http://charts.example.com}"},
			charts: []string{"oci://registry.example.com/charts", "http://charts.example.com"}, memory: "192Mi",
		},
		"the least memory": {
			reason: "the agent takes it, too", values: []string{"helm.memory=128Mi", "helm.charts={http://charts.example.com}"},
			charts: []string{"http://charts.example.com"}, memory: "128Mi",
		},
		"much memory": {
			reason: "large charts need it", values: []string{"helm.memory=2Gi", "helm.charts={http://charts.example.com}", "resources.limits.memory=5Gi"},
			charts: []string{"http://charts.example.com"}, memory: "2Gi",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := helmConfigOf(t, tc.values...)
			if diff := cmp.Diff(tc.charts, got.Charts); diff != "" || got.Memory.Cmp(resource.MustParse(tc.memory)) != 0 {
				t.Errorf("%s: memory %s, want %s, charts (-want +got):\n%s", tc.reason, got.Memory.String(), tc.memory, diff)
			}
		})
	}
}

// What the agent would refuse at its start is refused before it is installed.
func TestTheChartRefusesWhereNoHelmChartsAre(t *testing.T) {
	cases := map[string]struct {
		reason string
		value  string
		names  string
	}{
		"a user":           {reason: "a password has no place in it", value: "helm.charts={https://a:b@charts.example.com}", names: "helm/charts"},
		"a query":          {reason: "nothing is below it", value: "helm.charts={https://charts.example.com/a?b=c}", names: "helm/charts"},
		"a fragment":       {reason: "no server sees it", value: "helm.charts={https://charts.example.com/#a}", names: "helm/charts"},
		"a file":           {reason: "there is none in the agent", value: "helm.charts={file:///charts}", names: "helm/charts"},
		"no scheme":        {reason: "it may be a server or a registry", value: "helm.charts={charts.example.com}", names: "helm/charts"},
		"no host":          {reason: "it is nobody's", value: "helm.charts={https:///charts}", names: "helm/charts"},
		"a text":           {reason: "it is a list", value: "helm.charts=https://charts.example.com", names: "helm/charts"},
		"little memory":    {reason: "no process starts with it", value: "helm.memory=127Mi", names: "helm/memory"},
		"no memory":        {reason: "as above", value: "helm.memory=0Gi", names: "helm/memory"},
		"an unknown value": {reason: "a typo must not be ignored", value: "helm.chart={https://charts.example.com}", names: "chart"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, tc.reason, tc.names, "spokelet-agent", "--set", tc.value)
		})
	}
}

// A container that takes more than its limit is ended with all its processes.
func TestTheAgentsLimitHoldsTheProcessesOfHelm(t *testing.T) {
	const (
		processes = 2         // at once
		agent     = 100 << 20 // with 1000 works
	)
	text, _ := memoryOf(t, "spokelet-agent")
	limit, memory := resource.MustParse(text), helmConfigOf(t).Memory
	if most := processes*memory.Value() + agent; limit.Value() < most {
		t.Errorf("the limit is %s, below the %d MiB of %d processes and the agent", text, most>>20, processes)
	}
}
