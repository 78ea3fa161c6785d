// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/spokelet/spokelet/internal/quota"
)

const webMetric = `container_cpu_usage_seconds_total{container="main",namespace="team",pod="web"} 1` + "\n"

// filtered is what a filter of the node spoke1 with the pod team/web makes of an answer.
func filtered(filter summaryFilter, pods Pods, answer string) (string, error) {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	in := &limitedReader{from: strings.NewReader(answer), left: maxAnswer, part: maxAnswer}
	if err := filter(in, w, nodeScope{node: "spoke1", pods: pods}); err != nil {
		return "", err
	}
	_ = w.Flush()
	return out.String(), nil
}

func TestMetricsOfWhatIsNotTheNodesAreLeftOut(t *testing.T) {
	const head = "# TYPE container_cpu_usage_seconds_total counter\n"
	none := ""
	cases := map[string]struct{ reason, answer, want string }{
		"a container": {"it is the node's", webMetric, head + webMetric},
		"a pod": {
			"it is the node's", `pod_memory_working_set_bytes{pod="web",namespace="team"} 7 1000`,
			"# TYPE pod_memory_working_set_bytes gauge\n" + `pod_memory_working_set_bytes{namespace="team",pod="web"} 7 1000` + "\n",
		},
		"the node": {
			"it says what is missing, too", "node_cpu_usage_seconds_total 5 6\nspokelet_node_scrape_missing 0\n",
			"# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total 5 6\n" +
				"# TYPE spokelet_node_scrape_missing gauge\nspokelet_node_scrape_missing 0\n",
		},
		"texts": {
			"they are a kubelet's",
			"# HELP container_cpu_usage_seconds_total Time\n# TYPE container_cpu_usage_seconds_total gauge\n" + webMetric,
			"# HELP container_cpu_usage_seconds_total Time\n" + head + webMetric,
		},
		"another pod's container": {
			"autoscalers would follow it", `container_cpu_usage_seconds_total{container="main",namespace="team",pod="db"} 1`, none,
		},
		"another namespace": {"it is another pod", `pod_cpu_usage_seconds_total{namespace="other",pod="web"} 1`, none},
		"a container that the pod has not": {
			"its pod would use more", `container_cpu_usage_seconds_total{container="more",namespace="team",pod="web"} 1`, none,
		},
		"an init container": {
			"a pod has it", `container_start_time_seconds{container="init",namespace="team",pod="web"} 1`,
			"# TYPE container_start_time_seconds gauge\n" + `container_start_time_seconds{container="init",namespace="team",pod="web"} 1` + "\n",
		},
		"another family":     {"a kubelet has it elsewhere", `kubelet_volume_stats_used_bytes{namespace="team"} 1`, none},
		"a label more":       {"two series would be one pod's", `pod_cpu_usage_seconds_total{namespace="team",pod="web",x="y"} 1`, none},
		"a label less":       {"it names nothing", `pod_cpu_usage_seconds_total{namespace="team"} 1`, none},
		"a pod as container": {"it is of another family", `pod_cpu_usage_seconds_total{container="main",namespace="team",pod="web"} 1`, none},
		"a node with a name": {"it is another node's", `node_cpu_usage_seconds_total{node="spoke2"} 1`, none},
		"not a number":       {"it is no measure", `pod_cpu_usage_seconds_total{namespace="team",pod="web"} NaN`, none},
		"infinite":           {"it is no measure", `pod_cpu_usage_seconds_total{namespace="team",pod="web"} +Inf`, none},
		"negative":           {"it is no measure", `node_memory_working_set_bytes -1`, none},
		"before time began":  {"it is no time", `node_memory_working_set_bytes 1 -1`, none},
		"twice": {
			"readers refuse all of such an answer", webMetric + strings.Replace(webMetric, "} 1", "} 2", 1), head + webMetric,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := filtered(filterMetrics, testPods{web()}, tc.answer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got, err := filtered(filterMetrics, nil, webMetric); got != none || err != nil {
		t.Errorf("without pods: %q, %v", got, err)
	}
}

func TestMetricsThatCannotBeReadAreRefusedWhole(t *testing.T) {
	for name, answer := range map[string]string{
		"no value":       `pod_cpu_usage_seconds_total{namespace="team",pod="web"}`,
		"no end":         `pod_cpu_usage_seconds_total{namespace="team`,
		"two names":      `pod_cpu_usage_seconds_total{"other"} 1`,
		"a label twice":  `pod_cpu_usage_seconds_total{namespace="team",pod="web",pod="web"} 1`,
		"an endless one": strings.Repeat("x", maxMetricLine+1),
	} {
		if got, err := filtered(filterMetrics, testPods{web()}, webMetric+answer); !errors.Is(err, errFigures) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

const webStats = `{"podRef":{"name":"web","namespace":"team","uid":"u1"},"startTime":null,"containers":[{"name":"main","startTime":null}]}`

func TestStatsOfWhatIsNotTheNodesAreLeftOut(t *testing.T) {
	pod := web()
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
		{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	volume := func(namespace, claim string) string {
		return strings.TrimSuffix(webStats, "}") + `,"volume":[{"time":null,"usedBytes":1,"name":"data","pvcRef":{"name":"` + claim + `","namespace":"` + namespace + `"}}]}`
	}
	plain := strings.TrimSuffix(webStats, "}") + `,"volume":[{"time":null,"usedBytes":1,"name":"data"}]}`
	cases := map[string]struct{ reason, answer, want string }{
		"a pod":             {"it is the node's", webStats, webStats},
		"another pod":       {"autoscalers would follow it", strings.Replace(webStats, "web", "db", 1), ""},
		"another namespace": {"it is another pod", strings.Replace(webStats, "team", "other", 1), ""},
		"an earlier pod":    {"the hub's is another of the same name", strings.Replace(webStats, "u1", "u0", 1), ""},
		"twice":             {"the first counts", webStats + "," + webStats, webStats},
		"a container that the pod has not, and one twice": {
			"its pod would use more", strings.Replace(webStats, "[{", `[{"name":"more"},{"name":"main","startTime":null},{`, 1), webStats,
		},
		"a claim of the pod":             {"it is mounted", volume("team", "disk"), volume("team", "disk")},
		"an ephemeral claim of the pod":  {"it is mounted", volume("team", "web-own"), volume("team", "web-own")},
		"another claim":                  {"it would seem full", volume("team", "other"), plain},
		"a claim of another namespace":   {"it would seem full", volume("other", "disk"), plain},
		"a field that no kubelet states": {"it is left out", strings.Replace(webStats, "{", `{"more":{"a":[1]},`, 1), webStats},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const around = `{"node":{"nodeName":"spoke1","startTime":null},"pods":[%s],"spokeletMissingNodes":["a"],"spokeletMissingNodeCount":1}`
			answer := strings.Replace(fmt.Sprintf(around, tc.answer), "spoke1", "spoke2", 1)
			answer = `{"more":{},` + strings.TrimPrefix(answer, "{")
			got, err := filtered(filterStats, testPods{pod}, answer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fmt.Sprintf(around, tc.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got, err := filtered(filterStats, nil, `{"pods":[`+webStats+`]}`); got != `{"pods":[]}` || err != nil {
		t.Errorf("without pods: %q, %v", got, err)
	}
}

func TestStatsThatCannotBeReadAreRefusedWhole(t *testing.T) {
	for name, answer := range map[string]string{
		"no object":          `[]`,
		"cut":                `{"pods":[` + webStats,
		"cut in a pod":       `{"pods":[{`,
		"pods that are none": `{"pods":{}}`,
		"negative":           `{"node":{"cpu":{"time":null,"usageNanoCores":-1}}}`,
		"a field twice":      `{"pods":[],"pods":[]}`,
		"nothing":            ``,
	} {
		if got, err := filtered(filterStats, testPods{web()}, answer); !errors.Is(err, errFigures) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	long := `{"pods":[{"podRef":{"name":"` + strings.Repeat("x", 2*maxStatsPart) + `"}}]}`
	if got, err := filtered(filterStats, testPods{web()}, long); !errors.Is(err, errAnswer) {
		t.Errorf("an endless pod: got %q, %v", got, err)
	}
}

// manyPods are pods of any node, by name.
type manyPods map[string]*corev1.Pod

func newManyPods(n int) manyPods {
	pods := manyPods{}
	for i := range n {
		pod := web()
		pod.Name = fmt.Sprintf("web-%05d", i)
		pods[pod.Name] = pod
	}
	return pods
}

func (p manyPods) Pods(string) []*corev1.Pod { return slices.Collect(maps.Values(p)) }

func (p manyPods) Pod(_, _, name string) (*corev1.Pod, bool) {
	pod, ok := p[name]
	return pod, ok
}

// watchedReader calls seen with each read.
type watchedReader struct {
	io.Reader
	seen func()
}

func (w watchedReader) Read(p []byte) (int, error) {
	w.seen()
	return w.Reader.Read(p)
}

// answers of so many pods, as agents make them.
func answersOf(n int) map[string]string {
	var metrics, pods strings.Builder
	filler := strings.Repeat(`,"cpu":{"time":null,"usageNanoCores":1}`, 50)
	for i := range n {
		for family, of := range metricFamilies {
			if of.labels == ofContainer {
				fmt.Fprintf(&metrics, "%s{container=\"main\",namespace=\"team\",pod=\"web-%05d\"} 1234567.89 1700000000000\n", family, i)
			}
		}
		pod := strings.Replace(webStats, `"web"`, fmt.Sprintf(`"web-%05d"`, i), 1)
		fmt.Fprintf(&pods, "%s,", strings.Replace(pod, `"startTime":null`, `"startTime":null`+filler, 1))
	}
	return map[string]string{
		pathMetrics: metrics.String(),
		pathStats:   `{"node":{},"pods":[` + strings.TrimSuffix(pods.String(), ",") + `]}`,
	}
}

func TestFiguresAreHeldInSmallParts(t *testing.T) {
	for path, answer := range answersOf(2000) {
		t.Run(path, func(t *testing.T) {
			memory, most := quota.NewMemory(1<<40, 1<<40), int64(0)
			authn, authz := anybody()
			e := &endpoint{node: "spoke1.gpu", config: Config{
				Authenticator: authn, Authorizer: authz, Pods: newManyPods(2000), Memory: memory,
				Door: DoorFunc(func(context.Context, string) (http.RoundTripper, error) {
					return roundTripperFunc(func(*http.Request) (*http.Response, error) {
						body := watchedReader{strings.NewReader(answer), func() { most = max(most, memory.Held()) }}
						return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
					}), nil
				}),
			}}
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != http.StatusOK || bytes.Count(w.Body.Bytes(), []byte("web-")) < 2000 {
				t.Fatalf("%d, %d bytes of %d", w.Code, w.Body.Len(), len(answer))
			}
			if most > 2<<20 || memory.Held() != 0 {
				t.Errorf("%d bytes were held of an answer of %d, %d are", most, len(answer), memory.Held())
			}
		})
	}
}

func TestAnAnswerIsAsLongAsThePodsOfItsNodeAllow(t *testing.T) {
	for n, want := range map[int]int64{0: answerBase, 1: answerBase + answerPerPod, 10_000: maxAnswer} {
		e := &endpoint{node: "spoke1", config: Config{Pods: newManyPods(n)}}
		if got := e.responseLimit(); got != want {
			t.Errorf("%d pods: got %d, want %d", n, got, want)
		}
	}
	if got := (&endpoint{}).responseLimit(); got != answerBase {
		t.Errorf("without pods: got %d, want %d", got, answerBase)
	}
}

func TestFiguresShareTheirClustersMemory(t *testing.T) {
	memory := quota.NewMemory(answerCost+1<<20, 1<<40)
	authn, authz := anybody()
	asked := 0
	e := &endpoint{node: "spoke1.gpu", config: Config{
		Authenticator: authn, Authorizer: authz, Memory: memory,
		Door: testDoor{"spoke1.gpu": func(r *http.Request) (*http.Response, error) {
			asked++
			return says(http.StatusOK, `{"node":{"systemContainers":[`+strings.Repeat("{},", 20_000)+`{}]}}`)(r)
		}},
	}}
	const why = "memory budget is exhausted"
	check := func(reason string, wantAsked int) {
		t.Helper()
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest(http.MethodGet, pathStats, nil))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			!strings.HasPrefix(w.Body.String(), "cluster spoke1.gpu: ") || !strings.Contains(w.Body.String(), why) {
			t.Errorf("%s: %d %q", reason, w.Code, w.Body)
		}
		if asked != wantAsked {
			t.Errorf("%s: the cluster was asked %d times, want %d", reason, asked, wantAsked)
		}
	}
	check("a part that would be large once it is decoded", 1)
	other := memory.Account("spoke1") // another of the cluster's nodes
	defer other.Close()
	if err := other.Grow(1<<20 + 1); err != nil {
		t.Fatal(err)
	}
	check("others hold what there is", 1)
}

func TestFiguresThatAreCutNeverLookWhole(t *testing.T) {
	for path, answer := range answersOf(800) {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(path+" "+protocol, func(t *testing.T) {
				cutShort := func(*http.Request) (*http.Response, error) {
					body := io.MultiReader(strings.NewReader(answer[:len(answer)-100]), cut{})
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body)}, nil
				}
				v := &reviews{tokens: map[string]string{"t": "u"}, rights: map[right]bool{"u get spoke1/metrics": true, "u get spoke1/stats": true}}
				f := newFixture(t, v, testDoor{"spoke1": cutShort}, newManyPods(800).Pods("spoke1")...)
				transport := &http.Transport{
					TLSClientConfig:   &tls.Config{RootCAs: f.ca.pool(), NextProtos: []string{protocol}},
					ForceAttemptHTTP2: protocol == "h2", DisableKeepAlives: true,
				}
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.address+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer t")
				response, err := (&http.Client{Transport: transport}).Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				n, err := io.Copy(io.Discard, response.Body)
				if err == nil || response.StatusCode != http.StatusOK || n < answerBuffer/2 {
					t.Errorf("%d, %d bytes, %v: want an answer that began and was cut", response.StatusCode, n, err)
				}
			})
		}
	}
}

func FuzzFilterMetrics(f *testing.F) {
	f.Add(webMetric)
	f.Add("# HELP scrape_error text\\n\r\nscrape_error 1\nscrape_error 0x1p-3 5\n")
	f.Add(`pod_cpu_usage_seconds_total{pod="we\x62",namespace="team"} 1e400`)
	f.Fuzz(func(t *testing.T, answer string) {
		got, err := filtered(filterMetrics, testPods{web()}, answer)
		if err != nil {
			if !errors.Is(err, errFigures) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(got))
		if err != nil {
			t.Fatalf("%v in %q", err, got)
		}
		series := map[string]bool{}
		for name, family := range families {
			for _, m := range family.GetMetric() {
				key := fmt.Sprint(name, m.GetLabel())
				for _, l := range m.GetLabel() {
					if l.GetName() == labelPod && l.GetValue() != "web" || l.GetName() == labelNamespace && l.GetValue() != "team" {
						t.Fatalf("passed %s", key)
					}
				}
				if series[key] {
					t.Fatalf("%s is there twice", key)
				}
				series[key] = true
			}
		}
		if again, err := filtered(filterMetrics, testPods{web()}, got); again != got || err != nil {
			t.Fatalf("%q became %q, %v", got, again, err)
		}
	})
}

func FuzzFilterStats(f *testing.F) {
	f.Add(`{"node":{},"pods":[` + webStats + `]}`)
	f.Add(`{"pods":null,"spokeletMissingNodes":null,"spokeletMissingNodeCount":-1}`)
	f.Add(`{"Pods":[` + webStats + `],"pods":[{"podRef":{"name":"db"},"PODREF":{"name":"web"}}]}`)
	f.Fuzz(func(t *testing.T, answer string) {
		got, err := filtered(filterStats, testPods{web()}, answer)
		if err != nil {
			if !errors.Is(err, errFigures) && !errors.Is(err, errAnswer) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		var summary stats.Summary
		if err := json.Unmarshal([]byte(got), &summary); err != nil {
			t.Fatalf("%v in %q", err, got)
		}
		if len(summary.Pods) > 1 || len(summary.Pods) == 1 && summary.Pods[0].PodRef != (stats.PodReference{Name: "web", Namespace: "team", UID: "u1"}) {
			t.Fatalf("passed %+v", summary.Pods)
		}
		if again, err := filtered(filterStats, testPods{web()}, got); again != got || err != nil {
			t.Fatalf("%q became %q, %v", got, again, err)
		}
	})
}
