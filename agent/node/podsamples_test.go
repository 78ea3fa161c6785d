// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/spokelet/spokelet/api/wire"
)

// prefixed are the pods of namespaces that begin with "h-".
type prefixed struct{}

func (prefixed) HubPod(namespace, name string) (wire.PodKey, types.UID, bool) {
	namespace, ok := strings.CutPrefix(namespace, "h-")
	return wire.PodKey{Namespace: namespace, Name: name}, types.UID("hub-" + name), ok
}

// scrapeOf asks a scraper whose kubelets answer that on a path, a node each.
func scrapeOf(t *testing.T, path string, bodies ...string) (int, string) {
	t.Helper()
	var nodes nodeList
	k := kubelets{}
	for i, body := range bodies {
		ip := fmt.Sprintf("192.0.2.%d", i+1)
		nodes = append(nodes, testNode(ip, at(ip)))
		k[ip+":10250"+path] = answers(body)
	}
	s, err := NewScraper(ScraperConfig{Name: "spoke1", Nodes: nodes, Pods: prefixed{}, Transport: k, Logger: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return scrape(t, s, path)
}

// figuresOf are the lines of an answer about pods, without the text between.
func figuresOf(body string) []string {
	var lines []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "container_") || strings.HasPrefix(line, "pod_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestResourceMetricsUseNamesOfHubPods(t *testing.T) {
	const (
		cpu    = `container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 9.5 1000`
		memory = `container_memory_working_set_bytes{container="c",namespace="h-shop",pod="p"} 4096 1000`
		start  = `container_start_time_seconds{container="c",namespace="h-shop",pod="p"} 1.7e+09`
		pod    = `pod_cpu_usage_seconds_total{namespace="h-shop",pod="p"} 10 1000`
	)
	named := func(lines ...string) []string {
		var all []string
		for _, line := range lines {
			all = append(all, strings.ReplaceAll(line, "h-shop", "shop"))
		}
		return all
	}
	cases := map[string]struct {
		reason string
		bodies [][]string
		want   []string
	}{
		"ours and others": {
			reason: "what is not ours is nobody's business on the hub",
			bodies: [][]string{{cpu, strings.ReplaceAll(cpu, "h-shop", "kube-system"), memory, start, pod, strings.ReplaceAll(pod, "h-shop", "shop")}},
			want:   named(cpu, memory, start, pod),
		},
		"any order of labels": {
			reason: "a kubelet sorts them, and need not",
			bodies: [][]string{{
				`container_cpu_usage_seconds_total{pod="p", id="a\"}b" , namespace="h-shop",container="c",} 9.5 1000`, memory,
			}},
			want: named(cpu, memory),
		},
		"swap": {
			reason: "none of it used is a figure",
			bodies: [][]string{{
				cpu, memory, `container_swap_usage_bytes{container="c",namespace="h-shop",pod="p"} 0 1000`,
				`container_swap_limit_bytes{container="c",namespace="h-shop",pod="p"} 100 1000`, `pod_swap_usage_bytes{namespace="h-shop",pod="p"} 0 1000`,
			}},
			want: named(
				cpu, memory, `container_swap_limit_bytes{container="c",namespace="h-shop",pod="p"} 100 1000`,
				`container_swap_usage_bytes{container="c",namespace="h-shop",pod="p"} 0 1000`, `pod_swap_usage_bytes{namespace="h-shop",pod="p"} 0 1000`,
			),
		},
		"a container that has not been measured": {
			reason: "for one such container readers leave out its pod, which has another",
			bodies: [][]string{{
				cpu, memory, start, `container_cpu_usage_seconds_total{container="new",namespace="h-shop",pod="p"} 0 1000`,
				`container_memory_working_set_bytes{container="new",namespace="h-shop",pod="p"} 1 1000`, strings.ReplaceAll(start, `"c"`, `"new"`),
				`container_cpu_usage_seconds_total{container="half",namespace="h-shop",pod="p"} 1 1000`,
			}},
			want: named(cpu, memory, start),
		},
		"a pod that has not been measured": {
			reason: "a zero is no figure",
			bodies: [][]string{{`pod_cpu_usage_seconds_total{namespace="h-shop",pod="p"} 0 1000`, `pod_memory_working_set_bytes{namespace="h-shop",pod="p"} 0`}},
		},
		"a pod on two nodes": {
			reason: "one of them is late, and each series is there once",
			bodies: [][]string{{cpu, memory}, {
				`container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 1 2000`,
				`container_memory_working_set_bytes{container="c",namespace="h-shop",pod="p"} 2 2000`,
			}},
			want: named(
				`container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 1 2000`,
				`container_memory_working_set_bytes{container="c",namespace="h-shop",pod="p"} 2 2000`,
			),
		},
		"two nodes": {
			reason: "a family's lines are together, and in order",
			bodies: [][]string{
				{strings.ReplaceAll(cpu, `"p"`, `"q"`), strings.ReplaceAll(memory, `"p"`, `"q"`)}, {cpu, memory},
			},
			want: named(cpu, strings.ReplaceAll(cpu, `"p"`, `"q"`), memory, strings.ReplaceAll(memory, `"p"`, `"q"`)),
		},
		"a container that has no name": {
			reason: "no container is called that, and it would be written into a line",
			bodies: [][]string{{strings.ReplaceAll(cpu, `"c"`, `"a b"`), strings.ReplaceAll(memory, `"c"`, `"a b"`), strings.ReplaceAll(cpu, `"c"`, `""`)}},
		},
		"a pod with a container": {
			reason: "a pod's figure is not a container's",
			bodies: [][]string{{`pod_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 1`}},
		},
		"of another name": {
			reason: "it is not one of a kubelet's resource metrics",
			bodies: [][]string{{`container_cpu_usage_seconds_total_x{container="c",namespace="h-shop",pod="p"} 1`, `container_oom_events_total{namespace="h-shop",pod="p"} 1`}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var bodies []string
			for _, lines := range tc.bodies {
				bodies = append(bodies, strings.Join(lines, "\n")+"\n")
			}
			code, body := scrapeOf(t, "/metrics/resource", bodies...)
			if diff := cmp.Diff(tc.want, figuresOf(body)); code != http.StatusOK || diff != "" {
				t.Errorf("%s: %d (-want +got):\n%s", tc.reason, code, diff)
			}
		})
	}
}

// TestResourceMetricsAreValidTextFormat compares a whole answer: the order of families is
// the kubelet's, and each is said once what it is.
func TestResourceMetricsAreValidTextFormat(t *testing.T) {
	_, body := scrapeOf(t, "/metrics/resource", `container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 9 1000
container_memory_working_set_bytes{container="c",namespace="h-shop",pod="p"} 4096 1000
node_cpu_usage_seconds_total 10 1000
node_memory_working_set_bytes 8192 1000
node_swap_usage_bytes 1 1000
pod_cpu_usage_seconds_total{namespace="h-shop",pod="p"} 10 1000
`)
	const want = `# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="shop",pod="p"} 9 1000
# HELP container_memory_working_set_bytes Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",namespace="shop",pod="p"} 4096 1000
# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 10 1000
# HELP node_memory_working_set_bytes Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 8192 1000
# HELP node_swap_usage_bytes Current swap usage of the node in bytes. Reported only on non-windows systems
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 1 1000
# HELP pod_cpu_usage_seconds_total Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="p"} 10 1000
# HELP scrape_error 1 if there was an error while getting the figures, 0 otherwise
# TYPE scrape_error gauge
scrape_error 0
# HELP resource_scrape_error 1 if there was an error while getting the figures, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
# HELP spokelet_node_scrape_missing Nodes of the cluster whose kubelet did not answer
# TYPE spokelet_node_scrape_missing gauge
spokelet_node_scrape_missing 0
`
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestMalformedPodMetricsCountAsNoResponse(t *testing.T) {
	for reason, line := range map[string]string{
		"labels without an end":     `container_cpu_usage_seconds_total{container="c`,
		"a label without quotes":    `container_cpu_usage_seconds_total{container=c} 1`,
		"no labels":                 `container_cpu_usage_seconds_total 1`,
		"a value that is no number": `container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} much`,
		"more than a kubelet has":   manySamples(maxPodSamples + 1),
	} {
		if _, err := parseMetrics(strings.NewReader(line), prefixed{}); !errors.Is(err, errMalformedMetrics) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	if f, err := parseMetrics(strings.NewReader(manySamples(maxPodSamples)), prefixed{}); err != nil || len(f.pods) != maxPodSamples {
		t.Errorf("as many as a kubelet may have: %d, %v", len(f.pods), err)
	}
}

func manySamples(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"h-shop\",pod=\"p%d\"} 1\n", i)
	}
	return b.String()
}

func TestResourceMetricsLimitPodsAndReportMissing(t *testing.T) {
	var all []podSample
	for _, pod := range []string{"c", "b", "a"} {
		for family := range requiredFamilies {
			all = append(all, podSample{
				key: wire.PodKey{Namespace: "shop", Name: pod}, container: "main", family: family, sample: sample{value: 1},
			})
		}
	}
	for most, want := range map[int]string{0: " 3", 1: "aa 2", 2: "aabb 1", 3: "aabbcc 0", 4: "aabbcc 0"} {
		kept, left := mergePodSamples(append([]podSample{}, all...), most)
		var names strings.Builder
		for _, f := range kept {
			names.WriteString(f.key.Name)
		}
		if got := fmt.Sprintf("%s %d", names.String(), left); got != want {
			t.Errorf("at most %d: got %q, want %q", most, got, want)
		}
	}
	pods := []stats.PodStats{{PodRef: stats.PodReference{Name: "b"}}, {PodRef: stats.PodReference{Name: "a"}}, {PodRef: stats.PodReference{Name: "a"}}}
	if kept, left := mergePodStats(pods, 1); len(kept) != 1 || kept[0].PodRef.Name != "a" || left != 1 {
		t.Errorf("at most one: got %v and %d left out", kept, left)
	}
}

func TestStatsUseNamesOfHubPods(t *testing.T) {
	const first = `{"node":{"nodeName":"x","startTime":"2026-11-21T09:00:00Z"},"extra":{"a":[1]},"pods":[
{"podRef":{"name":"other","namespace":"kube-system","uid":"1"},"startTime":null,"containers":null},
{"podRef":{"name":"p","namespace":"h-shop","uid":"2"},"startTime":"2026-11-21T09:00:00Z",
 "containers":[{"name":"c","startTime":"2026-11-21T09:00:00Z","cpu":{"time":"2026-11-21T10:00:00Z","usageNanoCores":5}}],
 "volume":[{"time":"2026-11-21T10:00:00Z","name":"v","pvcRef":{"name":"v","namespace":"h-shop"}}]},
{"podRef":{"name":"late","namespace":"h-shop","uid":"3"},"startTime":"2026-11-21T08:00:00Z","containers":[]}]}`
	const second = `{"pods":[{"podRef":{"name":"late","namespace":"h-shop","uid":"4"},"startTime":"2026-11-21T09:00:00Z","containers":[]}],"node":{"nodeName":"y"}}`
	code, body := scrapeOf(t, "/stats/summary", first, second)
	var got struct {
		Pods json.RawMessage `json:"pods"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	const want = `[{"podRef":{"name":"late","namespace":"shop","uid":"hub-late"},"startTime":"2026-11-21T09:00:00Z","containers":[]},` +
		`{"podRef":{"name":"p","namespace":"shop","uid":"hub-p"},"startTime":"2026-11-21T09:00:00Z",` +
		`"containers":[{"name":"c","startTime":"2026-11-21T09:00:00Z","cpu":{"time":"2026-11-21T10:00:00Z","usageNanoCores":5}}],` +
		`"volume":[{"time":"2026-11-21T10:00:00Z","name":"v","pvcRef":{"name":"v","namespace":"shop"}}]}]`
	if diff := cmp.Diff(want, string(got.Pods)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}

func TestParseStatsRejectsMalformedSummary(t *testing.T) {
	for reason, body := range map[string]string{
		"nothing":               ``,
		"no object":             `[]`,
		"no end":                `{"node":{}`,
		"pods are no array":     `{"pods":{}}`,
		"a pod is no object":    `{"pods":[1]}`,
		"a name is no text":     `{"pods":[{"podRef":{"name":1}}]}`,
		"a time is no time":     `{"pods":[{"podRef":{"name":"p","namespace":"h-shop"},"startTime":"never"}]}`,
		"more pods than can be": `{"pods":[` + strings.Repeat(`{"podRef":{"namespace":"h-shop"}},`, maxPodsOfNode) + `{"podRef":{"namespace":"h-shop"}}]}`,
	} {
		if _, err := parseStats(strings.NewReader(body), prefixed{}); !errors.Is(err, errMalformedMetrics) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"pods":[`), spaces{})
	if _, err := parseStats(endless, prefixed{}); !errors.Is(err, errMalformedMetrics) {
		t.Errorf("without an end: got %v", err)
	}
}

// spaces has no end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestParseMetricsKeepsOnlyHubPods: what is kept of a kubelet's answer does not grow
// with the pods that are not ours.
func TestParseMetricsKeepsOnlyHubPods(t *testing.T) {
	var metrics, summary strings.Builder
	summary.WriteString(`{"node":{},"pods":[`)
	for i := range 3000 {
		fmt.Fprintf(&metrics, "pod_cpu_usage_seconds_total{namespace=\"other\",pod=\"p%d\"} 1\n", i)
		fmt.Fprintf(&summary, `{"podRef":{"name":"p%d","namespace":"other"}},`, i)
	}
	summary.WriteString(`{"podRef":{"name":"p","namespace":"h-shop"}}]}`)
	f, err := parseMetrics(strings.NewReader(metrics.String()), prefixed{})
	if err != nil || cap(f.pods) != 0 {
		t.Errorf("metrics: %d kept, %v", cap(f.pods), err)
	}
	s, err := parseStats(strings.NewReader(summary.String()), prefixed{})
	if err != nil || len(s.pods) != 1 || cap(s.pods) != 1 {
		t.Errorf("stats: %d kept, %v", cap(s.pods), err)
	}
	none, err := parseStats(strings.NewReader(summary.String()), nil)
	if err != nil || none.pods != nil {
		t.Errorf("stats for nobody: %d kept, %v", len(none.pods), err)
	}
}

func FuzzParsePodSamples(f *testing.F) {
	f.Add(`container_cpu_usage_seconds_total{container="c",namespace="h-shop",pod="p"} 9.5 1000`)
	f.Add(`pod_memory_working_set_bytes{namespace="h-shop",pod="p",id="\"}\\"} 1`)
	f.Add("container_memory_working_set_bytes{,}\n")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseMetrics(strings.NewReader(body), prefixed{})
		if err != nil {
			if !errors.Is(err, errMalformedMetrics) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		kept, _ := mergePodSamples(got.pods, maxPodsAnswered)
		for i, f := range kept {
			if i > 0 && f.sameSeries(kept[i-1]) {
				t.Fatalf("%+v is there twice", f)
			}
			if !(f.sample.value >= 0) || f.sample.millis < 0 || strings.ContainsAny(f.container, "\"\\\n ") {
				t.Fatalf("accepted %+v", f)
			}
		}
	})
}
