// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

func TestLivePodLifecycle(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.want(h.pod("web", reading("settings")))

	live := c.appears("web", "uid-web")
	if live.Labels[translate.LabelHub] != c.namespace || live.Labels["app"] != "web" || live.Spec.NodeName != "" {
		t.Errorf("pod in the spoke: labels %v, node %q", live.Labels, live.Spec.NodeName)
	}
	ns, err := c.kube.CoreV1().Namespaces().Get(t.Context(), c.namespace, metav1.GetOptions{})
	if err != nil || ns.Labels[LabelCreatedBy] != Creator {
		t.Errorf("namespace: %v, labels %v", err, ns.Labels)
	}
	if diff := cmp.Diff(map[string]string{"k": "1"}, c.dataOf("settings")); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}
	h.is("web", "is pending at its generation", func(s told) bool {
		return s.uid == "uid-web" && s.Generation == 1 && s.Status != nil && s.Status.Phase == corev1.PodPending
	})

	c.bind("web")
	c.report("web", corev1.PodRunning)
	h.is("web", "runs", func(s told) bool { return s.Status != nil && s.Status.Phase == corev1.PodRunning })
	if namespace, uid, ok := a.Locate(h.key("web")); !ok || namespace != c.namespace || uid != "uid-web" {
		t.Errorf("Locate = %q, %q, %t", namespace, uid, ok)
	}

	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "2"}})
	c.eventually("the copy follows", func() bool { return c.dataOf("settings")["k"] == "2" })
	h.want(h.pod("web", reading("settings"), func(p *wire.Pod) { p.Pod.Labels["tier"] = "front"; p.Pod.Generation = 2 }))
	h.is("web", "is brought to its new generation", func(s told) bool { return s.Generation == 2 })
	if got := c.pod("web").Labels["tier"]; got != "front" {
		t.Errorf("label in the spoke is %q", got)
	}

	h.want(h.pod("web", reading("settings"), deleting(120)))
	c.eventually("the pod ends with the hub's grace", func() bool { return graceOf(c.pod("web")) == 120 })
	h.want(h.pod("web", reading("settings"), deleting(5)))
	c.eventually("the grace is shortened", func() bool { return graceOf(c.pod("web")) == 5 })
	if s := h.status("web"); s.Gone {
		t.Errorf("the pod is gone while it ends: %+v", s)
	}
	c.end("web")
	h.is("web", "is gone", func(s told) bool { return s.Gone && !s.Lost })
	if left := c.dataOf("settings"); left != nil {
		t.Errorf("the copy is left behind: %v", left)
	}
	h.removePod("web")
	c.eventually("nothing is known of it", func() bool { return len(a.Sources()[0].Keys()) == 0 })
}

func graceOf(pod *corev1.Pod) int64 {
	if pod == nil || pod.DeletionTimestamp == nil {
		return -1
	}
	return *pod.DeletionGracePeriodSeconds
}

func TestPodDeletedInTheSpokeIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.want(h.pod("web"))
	c.appears("web", "uid-web")
	h.is("web", "is there", func(s told) bool { return s.Status != nil })
	c.end("web")
	h.is("web", "is lost", func(s told) bool { return s.Gone && s.Lost })

	a.stop()
	h.want(h.pod("web", func(p *wire.Pod) { p.Seen = true }))
	h.want(h.pod("new"))
	h.start()
	c.appears("new", "uid-new")
	h.is("web", "is still lost", func(s told) bool { return s.Gone && s.Lost })
	if c.pod("web") != nil {
		t.Error("a lost pod was made again")
	}
}

func TestRestartedEngineDeletesOnlyUnknownPods(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	a := h.start()
	h.want(h.pod("stays"))
	h.want(h.pod("goes", reading("settings")))
	stays := c.appears("stays", "uid-stays")
	c.appears("goes", "uid-goes")
	a.stop()

	// A hub that has not read its own records yet tells of nothing.
	again := newHub(c)
	b := again.start()
	c.eventually("the pods are known", func() bool {
		_, _, first := b.Locate(h.key("stays"))
		_, _, second := b.Locate(h.key("goes"))
		return first && second
	})
	again.want(again.pod("stays"))
	again.is("stays", "is adopted", func(s told) bool { return s.Status != nil && s.Generation == 1 })
	if pod := c.pod("goes"); pod == nil || pod.DeletionTimestamp != nil {
		t.Fatal("a pod was removed before the hub had told all")
	}
	again.complete()
	c.eventually("the other is removed, with its copies", func() bool { return c.pod("goes") == nil && c.dataOf("settings") == nil })
	if pod := c.pod("stays"); pod == nil || pod.UID != stays.UID {
		t.Error("the adopted pod is another")
	}
}

func TestPodOfTheSameNameWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("db"))
	c.appears("db", "uid-db")
	c.bind("db")
	h.want(h.pod("db", func(p *wire.Pod) { p.Pod.UID = "uid-second" }))
	c.eventually("the first ends with its own grace", func() bool { return graceOf(c.pod("db")) == 30 })
	c.end("db")
	c.appears("db", "uid-second")
	h.is("db", "is told of", func(s told) bool { return s.uid == "uid-second" && s.Status != nil })
}

func TestForceDeletedPodHasOneSecond(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("db"))
	c.appears("db", "uid-db")
	c.bind("db")
	h.put(wire.KindPodForced, wire.PodTokenKey{PodKey: h.key("db"), UID: "uid-db"}.String(), "uid-db", nil)
	h.want(h.pod("db", func(p *wire.Pod) { p.Pod.UID = "uid-second" }))
	c.eventually("the first has a second", func() bool { return graceOf(c.pod("db")) == leastGrace })
	c.end("db")
	c.appears("db", "uid-second")
}

func TestPodMissingOnTheHubEndsWithItsGrace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	c.appears("web", "uid-web")
	c.bind("web")
	h.removePod("web")
	c.eventually("it ends with its own grace", func() bool { return graceOf(c.pod("web")) == 30 })
}

func TestEndedPodStaysForItsLogs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	a := h.start()
	h.want(h.pod("job"))
	c.appears("job", "uid-job")
	c.bind("job")
	c.report("job", corev1.PodSucceeded)
	h.is("job", "has ended", func(s told) bool { return s.Status != nil && s.Status.Phase == corev1.PodSucceeded })
	h.want(h.pod("job", func(p *wire.Pod) { p.Ended, p.Seen = true, true }))
	h.want(h.pod("next"))
	c.appears("next", "uid-next")
	if c.pod("job") == nil {
		t.Fatal("the pod that has ended is gone")
	}
	// The spoke's own collector of such pods takes nothing from what is known.
	c.end("job")
	c.eventually("its end is seen", func() bool { _, _, ok := a.Locate(h.key("job")); return !ok })
	h.want(h.pod("job", deleting(1), func(p *wire.Pod) { p.Ended, p.Seen = true, true }))
	h.is("job", "is gone, and was not lost", func(s told) bool { return s.Gone && !s.Lost })
}

func TestHubChangesReachThePod(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	c.appears("web", "uid-web")
	h.is("web", "is there", func(s told) bool { return s.Generation == 1 })
	h.want(h.pod("web", func(p *wire.Pod) {
		p.Pod.Generation = 2
		p.Pod.Spec.Containers[0].Image = "spokelet.io/test/busybox:other"
		p.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "spokelet.io/test/busybox:latest"},
		}}
	}))
	h.is("web", "is changed", func(s told) bool { return s.Generation == 2 })
	live := c.pod("web")
	if live.Spec.Containers[0].Image != "spokelet.io/test/busybox:other" || len(live.Spec.EphemeralContainers) != 1 {
		t.Errorf("pod in the spoke: %+v", live.Spec)
	}
	h.want(h.pod("web", func(p *wire.Pod) {
		p.Pod.Generation = 3
		p.Pod.Spec.Containers[0].Image = "spokelet.io/test/busybox:other"
		p.Pod.Spec.EphemeralContainers = live.Spec.EphemeralContainers
		p.Pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = apiresource.MustParse("6000")
	}))
	h.is("web", "is resized", func(s told) bool { return s.Generation == 3 })
	if cpu := c.pod("web").Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "6k" {
		t.Errorf("request for CPU is %s", cpu)
	}
}

func TestRefusedUpdateIsAnEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	c.appears("web", "uid-web")
	h.is("web", "is there", func(s told) bool { return s.Generation == 1 })
	h.want(h.pod("web", func(p *wire.Pod) {
		p.Pod.Generation = 2
		p.Pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = apiresource.MustParse("-1")
		p.Pod.Labels["tier"] = "front"
	}))
	key := h.key("web").String() + "/uid-web-update"
	c.eventually("the hub hears of it", func() bool { return h.reasons()[key].Reason == ReasonUpdateRefused })
	if s := h.status("web"); s.Generation != 1 || s.Status == nil {
		t.Errorf("status: %+v, want that of the generation before", s)
	}
	c.eventually("what is not refused is written", func() bool { return c.pod("web").Labels["tier"] == "front" })
}

func TestPodEventsReachTheHub(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.start()
	h.want(h.pod("web"))
	live := c.appears("web", "uid-web")
	made := func(name string, uid types.UID) string {
		ev, err := c.kube.CoreV1().Events(c.namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: c.namespace, Name: "web", UID: uid, FieldPath: "spec.containers{main}"},
			Type:           corev1.EventTypeWarning, Reason: "BackOff", Message: "so says the test", Count: 3,
			FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Source: corev1.EventSource{Component: "kubelet", Host: "nowhere"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return h.key("web").String() + "/" + string(ev.UID)
	}
	other := made("other", "of-another-pod")
	ours := made("ours", live.UID)
	c.eventually("the event arrives", func() bool { return h.reasons()[ours].Reason == "BackOff" })
	got := h.reasons()[ours]
	if got.Count != 3 || got.Source != "kubelet" || got.Host != "nowhere" || got.FieldPath != "spec.containers{main}" || got.Type != corev1.EventTypeWarning {
		t.Errorf("event: %+v", got)
	}
	if _, ok := h.reasons()[other]; ok {
		t.Error("the event of another pod arrived")
	}
}

// TestSixHundredPodsAreCreatedWithoutDelay tells that none waits for a limit of ours, also the client's.
func TestManyPodsAreCreatedAndReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := newHub(c)
	h.complete()
	h.object(h.configMap("settings"), wire.PodObject{Text: map[string]string{"k": "1"}})
	h.start()
	const pods = 150
	began := time.Now()
	for i := range pods {
		h.want(h.pod(fmt.Sprintf("crowd-%d", i), reading("settings")))
	}
	c.eventually("all are told of", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		there := 0
		for _, s := range h.statuses {
			if s.Status != nil {
				there++
			}
		}
		return there == pods
	})
	t.Logf("%d pods in %s", pods, time.Since(began))
}
