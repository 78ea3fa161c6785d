// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// kubelets answers for nodes by their address; a function per host and path.
type kubelets map[string]func() (int, string, error)

func (k kubelets) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, ok := k[r.URL.Host+r.URL.Path]
	if !ok {
		return nil, errors.New("connection refused")
	}
	status, body, err := answer()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
}

type nodeList []*corev1.Node

func (l nodeList) Nodes() []*corev1.Node { return l }

func at(ip string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	}
}

func answers(body string) func() (int, string, error) {
	return func() (int, string, error) { return http.StatusOK, body, nil }
}

func metricsOf(cpu, memory float64, millis int64) string {
	return fmt.Sprintf(`# HELP container_cpu_usage_seconds_total x
container_cpu_usage_seconds_total{container="c",namespace="n",pod="p"} 9 1
node_cpu_usage_seconds_total %g %d
node_memory_working_set_bytes %g %d
resource_scrape_error 0
`, cpu, millis, memory, millis)
}

func scrape(t *testing.T, s *Scraper, path string) (int, string) {
	t.Helper()
	return scrapeDoor(t, s, path)
}

func scrapeDoor(t *testing.T, s http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil))
	return w.Code, w.Body.String()
}

func newScraper(t *testing.T, nodes nodeList, k kubelets) *Scraper {
	t.Helper()
	s, err := NewScraper(ScraperConfig{Name: "spoke1", Nodes: nodes, Transport: k, Logger: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func values(body string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(body) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			found[name] = rest
		}
	}
	return found
}

func TestResourceMetricsSumKubelets(t *testing.T) {
	two := nodeList{testNode("a", at("192.0.2.1")), testNode("b", at("192.0.2.2"))}
	const a, b = "192.0.2.1:10250/metrics/resource", "192.0.2.2:10250/metrics/resource"
	cases := map[string]struct {
		reason string
		k      kubelets
		want   map[string]string
	}{
		"both answer": {
			reason: "sums, at the mean time",
			k:      kubelets{a: answers(metricsOf(10, 100, 1000)), b: answers(metricsOf(20, 200, 3000))},
			want: map[string]string{
				"node_cpu_usage_seconds_total": "30 2000", "node_memory_working_set_bytes": "300 2000",
				"scrape_error": "0", "resource_scrape_error": "0", "spokelet_node_scrape_missing": "0",
			},
		},
		"one is silent": {
			reason: "the answer says what it lacks",
			k:      kubelets{a: answers(metricsOf(10, 100, 1000))},
			want: map[string]string{
				"node_cpu_usage_seconds_total": "10 1000", "node_memory_working_set_bytes": "100 1000",
				"scrape_error": "1", "resource_scrape_error": "1", "spokelet_node_scrape_missing": "1",
			},
		},
		"one has not measured yet": {
			reason: "a zero would be taken for a broken node",
			k:      kubelets{a: answers(metricsOf(0, 0, 1000)), b: answers("")},
			want:   map[string]string{"scrape_error": "0", "resource_scrape_error": "0", "spokelet_node_scrape_missing": "0"},
		},
		"one answers nonsense": {
			reason: "it is as good as silent",
			k:      kubelets{a: answers(metricsOf(10, 100, 1000)), b: answers("node_cpu_usage_seconds_total much")},
			want: map[string]string{
				"node_cpu_usage_seconds_total": "10 1000", "node_memory_working_set_bytes": "100 1000",
				"scrape_error": "1", "resource_scrape_error": "1", "spokelet_node_scrape_missing": "1",
			},
		},
		"one redirects": {
			reason: "a kubelet does not send our token elsewhere",
			k: kubelets{a: answers(metricsOf(10, 100, 1000)), b: func() (int, string, error) {
				return http.StatusFound, "", nil
			}},
			want: map[string]string{
				"node_cpu_usage_seconds_total": "10 1000", "node_memory_working_set_bytes": "100 1000",
				"scrape_error": "1", "resource_scrape_error": "1", "spokelet_node_scrape_missing": "1",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, body := scrape(t, newScraper(t, two, tc.k), "/metrics/resource")
			if diff := cmp.Diff(tc.want, values(body)); code != http.StatusOK || diff != "" {
				t.Errorf("%s: %d (-want +got):\n%s", tc.reason, code, diff)
			}
		})
	}
}

func TestScraperFailsWhenNoKubeletResponds(t *testing.T) {
	for name, nodes := range map[string]nodeList{"no nodes": nil, "silent": {testNode("a", at("192.0.2.1"))}} {
		for _, path := range []string{"/metrics/resource", "/stats/summary"} {
			if code, body := scrape(t, newScraper(t, nodes, kubelets{}), path); code != http.StatusServiceUnavailable {
				t.Errorf("%s, %s: got %d %q, want 503", name, path, code, body)
			}
		}
	}
}

func TestStatsSummarySumsKubelets(t *testing.T) {
	nodes := nodeList{testNode("a", at("192.0.2.1")), testNode("b", at("192.0.2.2")), testNode("c", at("192.0.2.3"))}
	stats := func(core, set int) func() (int, string, error) {
		return answers(fmt.Sprintf(`{"node":{"nodeName":"x","startTime":"2026-11-21T09:00:00Z",
"cpu":{"time":"2026-11-21T10:00:00Z","usageNanoCores":%d,"usageCoreNanoSeconds":%d},
"memory":{"time":"2026-11-21T10:00:00Z","workingSetBytes":%d},"network":{"name":"eth0"}},"pods":[{"podRef":{"name":"p"}}]}`, core, core*10, set))
	}
	s := newScraper(t, nodes, kubelets{
		"192.0.2.1:10250/stats/summary": stats(5, 100), "192.0.2.2:10250/stats/summary": stats(7, 0),
	})
	code, body := scrape(t, s, "/stats/summary")
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	want := map[string]any{
		"node": map[string]any{
			"nodeName": "spoke1", "startTime": "2026-11-21T09:00:00Z",
			"cpu":    map[string]any{"time": "2026-11-21T10:00:00Z", "usageNanoCores": 12.0, "usageCoreNanoSeconds": 120.0},
			"memory": map[string]any{"time": "2026-11-21T10:00:00Z", "workingSetBytes": 100.0},
		},
		"pods":                     []any{},
		"spokeletMissingNodes":     []any{"c"},
		"spokeletMissingNodeCount": 1.0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestConcurrentScrapesShareOneResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		release := make(chan struct{})
		s := newScraper(t, nodeList{testNode("a", at("192.0.2.1"))}, kubelets{
			"192.0.2.1:10250/metrics/resource": func() (int, string, error) {
				asked++
				<-release
				return http.StatusOK, metricsOf(1, 1, 1), nil
			},
		})
		codes := make(chan int)
		for range 10 {
			go func() {
				code, _ := scrape(t, s, "/metrics/resource")
				codes <- code
			}()
		}
		synctest.Wait()
		close(release)
		for range 10 {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		}
		if asked != 1 {
			t.Errorf("kubelet was asked %d times, want once", asked)
		}
	})
}

func TestScraperServesTwoPathsOnly(t *testing.T) {
	s := newScraper(t, nil, kubelets{})
	for _, path := range []string{"/", "/pods", "/exec/a/b/c", "/metrics", "/metrics/cadvisor", "/configz"} {
		if code, _ := scrape(t, s, path); code != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, code)
		}
	}
}

func TestKubeletAddress(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   corev1.NodeAddressType
		ip     string
		port   int32
		want   string
	}{
		"internal":   {reason: "the usual case", kind: corev1.NodeInternalIP, ip: "10.0.0.1", want: "10.0.0.1:10250"},
		"external":   {reason: "when there is no other", kind: corev1.NodeExternalIP, ip: "2001:db8::1", port: 1, want: "[2001:db8::1]:1"},
		"hostname":   {reason: "names are not resolved", kind: corev1.NodeHostName, ip: "10.0.0.1"},
		"loopback":   {reason: "that is us", kind: corev1.NodeInternalIP, ip: "127.0.0.1"},
		"mapped":     {reason: "that is us too", kind: corev1.NodeInternalIP, ip: "::ffff:127.0.0.1"},
		"link-local": {reason: "that is the cloud's metadata", kind: corev1.NodeInternalIP, ip: "169.254.169.254"},
		"not an IP":  {reason: "it would be resolved", kind: corev1.NodeInternalIP, ip: "localhost"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			node := testNode("a")
			node.Status.Addresses = []corev1.NodeAddress{{Type: tc.kind, Address: tc.ip}}
			node.Status.DaemonEndpoints.KubeletEndpoint.Port = tc.port
			got, err := kubeletAddress(node)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s: got %q, %v; want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}
