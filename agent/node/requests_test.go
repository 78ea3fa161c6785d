// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// testPod is a running pod on node a that requests half a CPU and a GiB.
func testPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{container("main", list("500m", "1Gi"))}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func container(name string, requests corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}}
}

func onNode(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

// ofHub makes a pod one of that hub.
func ofHub(id string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{translate.LabelHub: id, translate.LabelHubPodUID: "hub-" + string(p.UID)}
	}
}

func TestRequestedAmountsAreThoseOfScheduler(t *testing.T) {
	sidecar := container("sidecar", list("100m", "1Mi"))
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	resized := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = list("1", "1Gi")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", AllocatedResources: list("500m", "2Gi"), Resources: &corev1.ResourceRequirements{Requests: list("500m", "2Gi")},
		}}
	}
	cases := map[string]struct {
		reason string
		change func(*corev1.Pod)
		want   map[string]int64
	}{
		"one container": {
			reason: "CPU in thousandths, memory in bytes",
			change: func(*corev1.Pod) {}, want: map[string]int64{"cpu": 500, "memory": 1 << 30},
		},
		"no requests": {
			reason: "it takes its place and nothing else",
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, want: map[string]int64{},
		},
		"two containers": {
			reason: "they run together",
			change: func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, container("other", list("250m", "1Gi")))
			},
			want: map[string]int64{"cpu": 750, "memory": 2 << 30},
		},
		"an init container": {
			reason: "it runs before the others, and is more of the one and less of the other",
			change: func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{container("init", list("2", "1Mi"))} },
			want:   map[string]int64{"cpu": 2000, "memory": 1 << 30},
		},
		"a sidecar": {
			reason: "it runs with the init containers after it and with the others",
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{sidecar, container("init", list("450m", "1Gi"))}
			},
			want: map[string]int64{"cpu": 600, "memory": 1<<30 + 1<<20},
		},
		"overhead": {
			reason: "the runtime class takes some",
			change: func(p *corev1.Pod) { p.Spec.Overhead = list("50m", "1Gi") },
			want:   map[string]int64{"cpu": 550, "memory": 2 << 30},
		},
		"requests of the pod": {
			reason: "they stand for those of its containers",
			change: func(p *corev1.Pod) {
				p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("3", "1Gi")}
			},
			want: map[string]int64{"cpu": 3000, "memory": 1 << 30},
		},
		"a resize under way": {
			reason: "the most of what it has and what it is to have",
			change: resized, want: map[string]int64{"cpu": 1000, "memory": 2 << 30},
		},
		"a resize that cannot be": {
			reason: "it stays what it is",
			change: func(p *corev1.Pod) {
				resized(p)
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
				}}
			},
			want: map[string]int64{"cpu": 500, "memory": 2 << 30},
		},
		"extended resources": {
			reason: "whole ones",
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
			},
			want: map[string]int64{"nvidia.com/gpu": 2},
		},
		"parts": {
			reason: "they are rounded up",
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("100u", "1500m") },
			want:   map[string]int64{"cpu": 1, "memory": 2},
		},
		"as much as can be written": {
			reason: "it is no small number when it is counted in thousandths",
			change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("9223372036854775807", "8Ei") },
			want:   map[string]int64{"cpu": math.MaxInt64, "memory": math.MaxInt64},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]int64{}
			for _, a := range requestedAmounts(testPod("p", tc.change)) {
				got[string(a.resource.Value())] = a.value
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSumRequestsDoesNotOverflow(t *testing.T) {
	huge := trimPod(testPod("p", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = list("9223372036854775807", "8Ei")
	}), "").requests
	got := sumRequests(slices.Values([]podRequests{huge, huge, huge}))["a"]
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := got[name]; q.Sign() <= 0 || q.CmpInt64(math.MaxInt64/1000) < 0 {
			t.Errorf("%s: got %s", name, q.String())
		}
	}
	if q := got[corev1.ResourcePods]; q.Value() != 3 {
		t.Errorf("pods: got %s, want 3", q.String())
	}
	rest := remaining(list("4", "8Gi"), got)
	if diff := cmp.Diff(wire.Quantities{"cpu": "0", "memory": "0"}, wire.QuantitiesOf(rest)); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestPodTableSumsRequests tells a table of pods a story, as a reflector
// would.
func TestPodTableSumsRequests(t *testing.T) {
	touched := 0
	table := newPodTable(WatcherConfig{HubID: "hub1", NamespacePrefix: "h-"}, func() { touched++ })
	ours := func(p *corev1.Pod) { p.Namespace = "h-shop"; ofHub("hub1")(p) }
	steps := []struct {
		reason  string
		do      func(any) error
		obj     any
		want    string // CPUs in thousandths and pods, by node
		changes int
	}{
		{reason: "a pod takes of its node", do: table.Add, obj: testPod("x"), want: "a: 500 1;", changes: 1},
		{reason: "its status is no news", do: table.Update, obj: testPod("x", func(p *corev1.Pod) { p.Status.PodIP = "192.0.2.1" }), want: "a: 500 1;"},
		{reason: "our own pod takes nothing", do: table.Add, obj: testPod("y", ours), want: "a: 500 1;"},
		{reason: "another hub's is a stranger", do: table.Add, obj: testPod("z", ofHub("hub2"), onNode("b")), want: "a: 500 1; b: 500 1;", changes: 1},
		{reason: "a pod grows", do: table.Update, obj: testPod("x", func(p *corev1.Pod) { p.Spec.Overhead = list("1", "0") }), want: "a: 1500 1; b: 500 1;", changes: 1},
		{reason: "somebody takes our mark off", do: table.Update, obj: testPod("y", func(p *corev1.Pod) { p.Namespace = "h-shop" }), want: "a: 2000 2; b: 500 1;", changes: 1},
		{reason: "and puts it on again", do: table.Update, obj: testPod("y", ours), want: "a: 1500 1; b: 500 1;", changes: 1},
		{reason: "a pod is gone", do: table.Delete, obj: testPod("z", ofHub("hub2"), onNode("b")), want: "a: 1500 1;", changes: 1},
		{reason: "it is gone only once", do: table.Delete, obj: testPod("z"), want: "a: 1500 1;"},
		{reason: "what is no pod is nothing", do: table.Add, obj: testNode("a"), want: "a: 1500 1;"},
		{reason: "what is no pod is not taken away", do: table.Delete, obj: testNode("a"), want: "a: 1500 1;"},
		{
			reason: "a list says all", do: func(obj any) error { return table.Replace([]any{obj, testPod("y", ours), testNode("a")}, "7") },
			obj: testPod("w"), want: "a: 500 1;", changes: 1,
		},
	}
	for _, s := range steps {
		touched = 0
		if err := s.do(s.obj); err != nil {
			t.Fatalf("%s: %v", s.reason, err)
		}
		if got := describe(table.sumRequests()); got != s.want || touched != s.changes {
			t.Fatalf("%s: got %q after %d changes, want %q after %d", s.reason, got, touched, s.want, s.changes)
		}
	}
	<-table.Done() // a list has been there
	key, uid, ok := table.hubPod("h-shop", "y")
	if !ok || key != (wire.PodKey{Namespace: "shop", Name: "y"}) || uid != "hub-uid-y" {
		t.Errorf("our pod: got %v, %q, %t", key, uid, ok)
	}
	for _, other := range []types.NamespacedName{
		{Namespace: "default", Name: "w"}, {Namespace: "shop", Name: "y"}, {Namespace: "h-", Name: "y"}, {Namespace: "h-shop", Name: "x"}, {},
	} {
		if _, _, ok := table.hubPod(other.Namespace, other.Name); ok {
			t.Errorf("%s is said to be ours", other)
		}
	}
	if err := table.Delete(testPod("y", ours)); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := table.hubPod("h-shop", "y"); ok {
		t.Error("a pod that is gone is said to be ours")
	}
}

func describe(taken requestsByNode) string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(taken)) {
		cpu, pods := taken[node][corev1.ResourceCPU], taken[node][corev1.ResourcePods]
		all = append(all, fmt.Sprintf("%s: %d %d;", node, cpu.MilliValue(), pods.Value()))
	}
	return strings.Join(all, " ")
}

func TestPodTableWithoutHubHasNoHubPods(t *testing.T) {
	table := newPodTable(WatcherConfig{}, func() {})
	if err := table.Add(testPod("x", ofHub(""))); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := table.hubPod("default", "x"); ok || describe(table.sumRequests()) != "a: 500 1;" {
		t.Errorf("ours: %t; taken: %s", ok, describe(table.sumRequests()))
	}
}

// TestPodTableTrimsPods: what the reflector collects before the first list is
// complete must not be the pods themselves.
func TestPodTableTrimsPods(t *testing.T) {
	table := newPodTable(WatcherConfig{}, func() {})
	pod := testPod("x", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} })
	small, err := table.Transformer()(pod)
	o, ok := small.(*trimmedPod)
	if err != nil || !ok || o.Name != "x" || o.Annotations != nil {
		t.Fatalf("got %+v, %v", small, err)
	}
	if other, err := table.Transformer()("nonsense"); err != nil || other != "nonsense" {
		t.Errorf("what is no pod: got %v, %v", other, err)
	}
	page := table.trimList(&corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{*pod}})
	if page.Continue != "more" || len(page.Items) != 1 {
		t.Fatalf("page: got %+v", page)
	}
	if copied, ok := page.Items[0].DeepCopyObject().(*trimmedPod); !ok || !copied.requests.equal(o.requests) {
		t.Errorf("item of a page: got %+v", page.Items[0])
	}
}

// TestPodTableMemoryPerPod fills a table as a list of the API server does:
// no two pods share what they are decoded into.
func TestPodTableMemoryPerPod(t *testing.T) {
	const pods, most = 10000, 400
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	table := newPodTable(WatcherConfig{}, func() {})
	before := heap()
	for i := range pods {
		pod := testPod(fmt.Sprintf("deployment-7d4b9c6f5d-%05d", i), onNode(fmt.Sprintf("node-%d", i%100)), func(p *corev1.Pod) {
			p.Namespace = strings.Clone("a-namespace-of-some-length")
			p.Annotations = map[string]string{"large": strings.Repeat("x", 4096)}
		})
		if err := table.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / pods; each > most {
		t.Errorf("a pod costs %d bytes, want no more than %d", each, most)
	} else {
		t.Logf("a pod costs %d bytes", each)
	}
	if got := len(table.sumRequests()); got != 100 {
		t.Errorf("%d nodes, want 100", got)
	}
}
