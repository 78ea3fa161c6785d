// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
)

const poolLabel = "example.com/pool"

func inPool(pool string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[poolLabel] = pool }
}

func TestGroupByLabelPutsOtherNodesInRest(t *testing.T) {
	cases := map[string]struct {
		reason string
		node   *corev1.Node
		group  string
	}{
		"with the label":          {reason: "its value is its group", node: testNode("a", inPool("gpu")), group: "gpu"},
		"without the label":       {reason: "it has no group", node: testNode("a")},
		"with an empty label":     {reason: "it has no group", node: testNode("a", inPool(""))},
		"with a value for people": {reason: "it cannot be in a name", node: testNode("a", inPool("GPU_A100"))},
		"with a dot":              {reason: "another node might have the name", node: testNode("a", inPool("gpu.a100"))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := groupByLabel([]*corev1.Node{tc.node}, poolLabel)
			if got := len(p.groups[tc.group]) == 1; got != (tc.group != "") {
				t.Errorf("%s: in the group: %t", tc.reason, got)
			}
			if got := len(p.rest) == 1; got != (tc.group == "") {
				t.Errorf("%s: in the rest: %t", tc.reason, got)
			}
		})
	}
}

func TestGroupByLabelPutsGroupsBeyondLimitInRest(t *testing.T) {
	var nodes []*corev1.Node
	for i := range wire.NodeGroupsMax + 6 {
		nodes = append(nodes, testNode(strconv.Itoa(i), inPool(fmt.Sprintf("pool-%03d", i))))
	}
	p := groupByLabel(nodes, poolLabel)
	if len(p.groups) != wire.NodeGroupsMax || len(p.rest) != 6 || p.groups["pool-069"] != nil {
		t.Errorf("%d groups, %d in the rest", len(p.groups), len(p.rest))
	}
}

// pools are machines in so many pools, each in its own.
func pools(prefix string, n int, change ...func(*corev1.Node)) (nodes []*corev1.Node) {
	for i := range n {
		nodes = append(nodes, testNode(fmt.Sprintf("m%03d", n-i), append(change, inPool(fmt.Sprintf("%s%03d", prefix, i)))...))
	}
	return nodes
}

func TestReadyConditionNamesGroupsBeyondLimit(t *testing.T) {
	long := strings.Repeat("x", 59)
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   string
	}{
		"none": {reason: "nothing is left out", nodes: append(pools("pool-", 64), testNode("rest")), want: "1 of 1 nodes are ready"},
		"one":  {reason: "it is named", nodes: pools("pool-", 65), want: "1 of 1 nodes are ready; beyond 64 values, shown here: pool-064"},
		"a handful": {
			reason: "all are named, sorted", nodes: pools("p", 68), want: "4 of 4 nodes are ready; beyond 64 values, shown here: p064, p065, p066, p067",
		},
		"many": {
			reason: "the first are named, the others counted", nodes: pools("pool-", 300),
			want: "236 of 236 nodes are ready; beyond 64 values, shown here: pool-064, pool-065, pool-066, pool-067, pool-068, pool-069, pool-070, pool-071 and 228 more",
		},
		"long ones": {
			reason: "one is named in any case", nodes: pools(long+"-", 70),
			want: "6 of 6 nodes are ready; beyond 64 values, shown here: " + long + "-064 and 5 more",
		},
		"beside a long reason": {
			reason: "neither takes all the room",
			nodes:  pools("p", 66, with(corev1.NodeReady, corev1.ConditionFalse, strings.Repeat("R", 300))),
			want:   "0 of 64 nodes in groups are ready, 0 of 2 in none: " + strings.Repeat("R", 77) + "; beyond 64 values, shown here: p064, p065",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, stop := startSplitting(t, plain, tc.nodes...)
				defer stop()
				if got := s.rest.Conditions[len(s.rest.Conditions)-1].Message; got != tc.want {
					t.Errorf("%s: message is\n%q, want\n%q", tc.reason, got, tc.want)
				}
			})
		})
	}
}

func TestReadyTransitionTimeIgnoresGroupsBeyondLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startSplitting(t, plain, append(pools("pool-", 65), testNode("rest"))...)
		defer stop()
		check := func(when, message string, groups ...string) {
			t.Helper()
			synctest.Wait()
			want := wire.NodeCondition{Type: "Ready", Status: "True", Reason: "NodesReady", Message: message}
			if diff := cmp.Diff(want, s.rest.Conditions[len(s.rest.Conditions)-1]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			if got := []string{s.rest.Split.Groups[0], s.rest.Split.Groups[63]}; !slices.Equal(got, groups) {
				t.Errorf("%s: first and last are %v, want %v", when, got, groups)
			}
		}
		nodes := s.client.CoreV1().Nodes()
		const before = "2 of 2 nodes are ready; beyond 64 values, shown here: pool-064"
		check("at first", before, "pool-000", "pool-063")
		if _, err := nodes.Create(t.Context(), testNode("late", inPool("pool-999")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		check("one more", "3 of 3 nodes are ready; beyond 64 values, shown here: pool-064, pool-999", "pool-000", "pool-063")
		if _, err := nodes.Create(t.Context(), testNode("twin", inPool("pool-999")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		check("another machine of it", "4 of 4 nodes are ready; beyond 64 values, shown here: pool-064, pool-999", "pool-000", "pool-063")
		for _, name := range []string{"late", "twin"} {
			if err := nodes.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		check("it has gone", before, "pool-000", "pool-063")
		if err := nodes.Delete(t.Context(), "m065", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("a group has gone", "1 of 1 nodes are ready", "pool-001", "pool-064")
	})
}

// plain leaves a client as it is.
func plain(*fake.Clientset) {}

// splitting runs a Watcher by the pool.
type splitting struct {
	*Watcher
	client *fake.Clientset
	rest   wire.NodeSummary
	groups map[string]wire.NodeSummary
}

func startSplitting(t *testing.T, prepare func(*fake.Clientset), nodes ...*corev1.Node) (s *splitting, stop func()) {
	t.Helper()
	s = &splitting{client: fake.NewSimpleClientset()}
	prepare(s.client)
	for _, n := range nodes {
		if err := s.client.Tracker().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	decode := func(body []byte) wire.NodeSummary {
		summary, err := wire.DecodeNodeSummary(body)
		if err != nil {
			t.Error(err)
		}
		return summary
	}
	w, err := NewWatcher(WatcherConfig{
		Client: s.client, Version: &fixedVersion{version: "v1.37.2"}, Logger: testr.New(t), HubID: "hub1", SplitLabel: poolLabel,
		Publisher: PublisherFunc(func(b []byte) { s.rest = decode(b) }),
		Groups: GroupPublisherFunc(func(bodies map[string][]byte) {
			s.groups = map[string]wire.NodeSummary{}
			for name, body := range bodies {
				s.groups[name] = decode(body)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Watcher = w
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run(): %v", err)
		}
	}
}

// cpus are what the parts have, and the whole.
func (s *splitting) cpus() map[string]string {
	out := map[string]string{"": s.rest.Capacity["cpu"], "whole": s.rest.Split.Capacity["cpu"]}
	for name, g := range s.groups {
		out[name] = g.Capacity["cpu"]
	}
	return out
}

func TestGroupSummariesAddUpToCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startSplitting(t, plain, testNode("a"), testNode("b", inPool("gpu")), testNode("c", inPool("gpu")), testNode("d", inPool("std")))
		defer stop()
		if diff := cmp.Diff(map[string]string{"": "4", "gpu": "8", "std": "4", "whole": "16"}, s.cpus()); diff != "" {
			t.Errorf("CPUs (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"gpu", "std"}, s.rest.Split.Groups); diff != "" || s.rest.Split.Label != poolLabel {
			t.Errorf("split by %q (-want +got):\n%s", s.rest.Split.Label, diff)
		}
		move := testNode("d", inPool("gpu"))
		if _, err := s.client.CoreV1().Nodes().Update(t.Context(), move, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff(map[string]string{"": "4", "gpu": "12", "whole": "16"}, s.cpus()); diff != "" {
			t.Errorf("CPUs when a node has changed its group (-want +got):\n%s", diff)
		}
		groups, err := s.GroupNames()
		if diff := cmp.Diff([]string{"gpu"}, groups); diff != "" || err != nil {
			t.Errorf("groups: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestRestWithoutReadyNodesHasNoCapacityAndReadinessOfCluster(t *testing.T) {
	unready := with(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady")
	cases := map[string]struct {
		reason string
		nodes  []*corev1.Node
		want   string
		// says is a message, capacity and allocatable are CPUs, "" for any.
		says, capacity, allocatable string
	}{
		"a group is ready": {
			reason: "pods that were bound before stay", nodes: []*corev1.Node{testNode("a", inPool("gpu")), testNode("b", inPool("std"), unready)},
			want: "True NodesInGroups", says: "every node is in a group: 1 of 2 are ready", capacity: "0", allocatable: "0",
		},
		"no group is ready": {
			reason: "the cluster is not", nodes: []*corev1.Node{testNode("a", inPool("gpu"), unready)}, want: "False NoReadyNodes",
		},
		"there are no nodes": {reason: "as without groups", want: "False NoNodes"},
		"no node is ready, and there are no groups": {
			reason: "as without groups", nodes: []*corev1.Node{testNode("a", unready)}, want: "False NoReadyNodes",
			says: "0 of 1 nodes are ready: KubeletNotReady",
		},
		"a new machine has no label yet": {
			reason: "pods that were bound before run on other machines", nodes: []*corev1.Node{testNode("a", inPool("gpu")), testNode("b", unready)},
			want: "True ReadyNodesInGroups", says: "1 of 1 nodes in groups are ready, 0 of 1 in none: KubeletNotReady", capacity: "4", allocatable: "0",
		},
		"a new machine has said nothing yet": {
			reason: "the hub's node keeps what it is not told of",
			nodes:  []*corev1.Node{testNode("a", inPool("gpu")), testNode("b", func(n *corev1.Node) { n.Status = corev1.NodeStatus{} })},
			want:   "True ReadyNodesInGroups", says: "1 of 1 nodes in groups are ready, 0 of 1 in none", capacity: "0", allocatable: "0",
		},
		"a machine of the rest is ready": {
			reason: "it speaks for itself", nodes: []*corev1.Node{testNode("a", inPool("gpu")), testNode("b", unready), testNode("c")},
			want: "True NodesReady", says: "1 of 2 nodes are ready", capacity: "8", allocatable: "3500m",
		},
		"no machine is ready": {
			reason: "the cluster is not", nodes: []*corev1.Node{testNode("a", inPool("gpu"), unready), testNode("b", unready)},
			want: "False NoReadyNodes", says: "0 of 1 nodes in groups are ready, 0 of 1 in none: KubeletNotReady", allocatable: "0",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, stop := startSplitting(t, plain, tc.nodes...)
				defer stop()
				ready := s.rest.Conditions[len(s.rest.Conditions)-1]
				if got := ready.Status + " " + ready.Reason; ready.Type != "Ready" || got != tc.want {
					t.Errorf("%s: %s is %q, want %q", tc.reason, ready.Type, got, tc.want)
				}
				for _, q := range []struct{ what, got, want string }{
					{"message", ready.Message, tc.says},
					{"capacity", s.rest.Capacity["cpu"], tc.capacity},
					{"allocatable", s.rest.Allocatable["cpu"], tc.allocatable},
				} {
					if q.want != "" && q.got != q.want {
						t.Errorf("%s: %s is %q, want %q", tc.reason, q.what, q.got, q.want)
					}
				}
			})
		})
	}
}

func TestGroupNamesFailBeforeNodesAreListed(t *testing.T) {
	w, err := NewWatcher(WatcherConfig{
		Client: fake.NewSimpleClientset(), Version: &fixedVersion{}, SplitLabel: poolLabel,
		Publisher: PublisherFunc(func([]byte) {}), Groups: GroupPublisherFunc(func(map[string][]byte) {}),
	})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := w.GroupNames()
		answered <- err
	}()
	select {
	case err := <-answered:
		if !errors.Is(err, errNodesNotListed) {
			t.Errorf("groups before the nodes are listed: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("whoever asks for groups waits for the nodes to be listed")
		close(w.listed)
		<-answered
	}
}

func TestGroupNamesDoNotWaitForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := startSplitting(t, func(client *fake.Clientset) {
			client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("so says the test")
			})
		}, testNode("a", inPool("gpu")))
		defer stop()
		groups, err := s.GroupNames()
		if diff := cmp.Diff([]string{"gpu"}, groups); diff != "" || err != nil {
			t.Errorf("groups: %v (-want +got):\n%s", err, diff)
		}
		if s.groups != nil {
			t.Error("what pods take is guessed")
		}
	})
}

// groupList are the nodes of groups.
type groupList map[string]nodeList

func (g groupList) NodesOf(group string) []*corev1.Node { return g[group] }

func (g groupList) Nodes() []*corev1.Node { return slices.Concat(slices.Collect(maps.Values(g))...) }

// withLabel is a door that the hub asks with the label that its record consents to.
func withLabel(door http.Handler, label string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(wire.SplitLabelHeader, label)
		door.ServeHTTP(w, r)
	})
}

func TestScrapersServeWholeClusterWithoutConsentToSplit(t *testing.T) {
	groups := groupList{"gpu": {testNode("a", at("192.0.2.1"))}, "": {testNode("b", at("192.0.2.2"))}}
	k := kubelets{
		"192.0.2.1:10250/metrics/resource": answers(metricsOf(10, 1000, 5000)),
		"192.0.2.2:10250/metrics/resource": answers(metricsOf(20, 1000, 5000)),
	}
	s, err := NewScrapers(ScraperConfig{Name: "spoke1", Transport: k, Logger: testr.New(t)}, groups, poolLabel)
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{"": "30 5000", "example.com/other": "30 5000", poolLabel: "20 5000"} {
		w := httptest.NewRecorder()
		withLabel(s, label).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/metrics/resource", nil))
		if got := values(w.Body.String())[metricCPU]; w.Code != http.StatusOK || got != want {
			t.Errorf("shown by the label %q: %d, CPU %q, want %q", label, w.Code, got, want)
		}
	}
}

func TestScrapersServeMetricsPerGroup(t *testing.T) {
	groups := groupList{
		"gpu": {testNode("a", at("192.0.2.1"))},
		"std": {testNode("b", at("192.0.2.2")), testNode("c", at("192.0.2.3"))},
	}
	k := kubelets{}
	for i, ip := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		k[ip+":10250/metrics/resource"] = answers(metricsOf(float64(10*(i+1)), 1000, 5000))
		k[ip+":10250/stats/summary"] = answers(`{"node":{"nodeName":"x"}}`)
	}
	s, err := NewScrapers(ScraperConfig{Name: "spoke1", Transport: k, Logger: testr.New(t)}, groups, poolLabel)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) (int, string) {
		t.Helper()
		return scrapeDoor(t, withLabel(s, poolLabel), path)
	}
	for path, want := range map[string]string{
		"/groups/gpu/metrics/resource": "10 5000", "/groups/std/metrics/resource": "50 5000", "/metrics/resource": "",
	} {
		code, body := ask(path)
		if got := values(body)[metricCPU]; code != http.StatusOK || got != want {
			t.Errorf("%s: %d, CPU %q, want %q", path, code, got, want)
		}
	}
	if code, body := ask("/groups/gpu/stats/summary"); code != http.StatusOK || !strings.Contains(body, `"nodeName":"spoke1.gpu"`) {
		t.Errorf("stats of a group: %d, %s", code, body)
	}
	if code, body := ask("/stats/summary"); code != http.StatusOK || !strings.Contains(body, `"nodeName":"spoke1"`) {
		t.Errorf("stats of the rest: %d, %s", code, body)
	}
	delete(groups, "gpu")
	for _, path := range []string{"/groups/gpu/stats/summary", "/groups/none/stats/summary", "/groups//stats/summary", "/groups/..%2Fx/stats/summary"} {
		if code, _ := ask(path); code == http.StatusOK {
			t.Errorf("%s is answered", path)
		}
	}
	if len(s.byGroup) != 1 {
		t.Errorf("%d groups are held, want the one that has nodes", len(s.byGroup))
	}
}

func TestGroupSummaryHasSystemOfItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arm := func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "arm64" }
		s, stop := startSplitting(t, plain, testNode("a"), testNode("b", inPool("gpu"), arm))
		defer stop()
		check := func(when string, rest, gpu, whole wire.NodeSystem) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff([]wire.NodeSystem{rest, gpu, whole}, []wire.NodeSystem{s.rest.System, s.groups["gpu"].System, s.rest.Whole().System}); diff != "" {
				t.Errorf("rest, group and whole cluster %s (-want +got):\n%s", when, diff)
			}
		}
		amd64, arm64 := wire.NodeSystem{OS: "linux", Arch: "amd64"}, wire.NodeSystem{OS: "linux", Arch: "arm64"}
		check("at first", amd64, arm64, wire.NodeSystem{OS: "linux"})
		if err := s.client.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("when the one that differs has gone", wire.NodeSystem{}, arm64, arm64)
	})
}
