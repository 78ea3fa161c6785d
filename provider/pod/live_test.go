// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/provider/pod/address"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// wiretap counts the writes of a client, and holds up its lists while it is shut.
type wiretap struct {
	next http.RoundTripper
	shut chan struct{}

	mu     sync.Mutex
	writes map[string]int
}

func (w *wiretap) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		path := strings.Split(r.URL.Path, "/")
		w.mu.Lock()
		w.writes[r.Method+" "+path[min(5, len(path)-1)]]++
		w.mu.Unlock()
	} else if w.shut != nil {
		select {
		case <-w.shut:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return w.next.RoundTrip(r)
}

func (w *wiretap) reset() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.writes
	w.writes = map[string]int{}
	return old
}

// liveHub is a hub's API server.
type liveHub struct {
	t      *testing.T
	config *rest.Config
	api    kubernetes.Interface
	node   string
}

func newLiveHub(t *testing.T) *liveHub {
	t.Helper()
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	api, _ := clientOf(t, config)
	return &liveHub{t: t, config: config, api: api, node: fmt.Sprintf("pod-test-%d", time.Now().UnixNano()%1e9)}
}

// clientOf returns a client, and what it writes.
func clientOf(t *testing.T, config *rest.Config) (kubernetes.Interface, *wiretap) {
	t.Helper()
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	tap := &wiretap{next: plain.Transport, writes: map[string]int{}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: tap})
	if err != nil {
		t.Fatal(err)
	}
	return client, tap
}

// process is one life of a hub process.
type process struct {
	*Controller
	sync *resource.Hub
	tap  *wiretap
	stop func()
}

func (h *liveHub) start(shut chan struct{}, change ...func(*Config)) *process {
	h.t.Helper()
	client, tap := clientOf(h.t, h.config)
	tap.shut = shut
	p := &process{sync: resource.NewHub(), tap: tap}
	var err error
	config := Config{Client: client, Sync: p.sync, Objects: ObjectPolicy{Namespaces: []string{AllNamespaces}}, Logger: testr.New(h.t), Registerer: prometheus.NewRegistry()}
	for _, f := range change {
		f(&config)
	}
	p.Controller, err = New(config)
	if err != nil {
		h.t.Fatal(err)
	}
	p.sync.Publish(kindProbe, nil)
	p.sync.Source(h.node, kindProbe).Complete()
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Start(ctx); err != nil {
			h.t.Errorf("Start(): %v", err)
		}
	})
	p.SetConsent(h.node, Consent{Addresses: limitOf(h.t, "0.0.0.0/0,::/0")})
	if shut == nil { // else an address would be a write of its own
		livetest.Eventually(h.t, "the hub's network is known", p.network.Known)
	}
	unwatch := p.Watch(ctx, h.node)
	p.stop = sync.OnceFunc(func() {
		cancel()
		unwatch()
		running.Wait()
	})
	return p
}

// limitOf is what a record says of addresses.
func limitOf(t *testing.T, text string) address.Limit {
	t.Helper()
	limit, err := address.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// pod makes a pod on the node, which goes with the test.
func (h *liveHub) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	h.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.node + name},
		Spec: corev1.PodSpec{
			NodeName: h.node, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "main", Image: "spokelet.io/test/pause:latest"}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	pods := h.api.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(h.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = pods.Delete(context.WithoutCancel(h.t.Context()), pod.Name, *metav1.NewDeleteOptions(0))
	})
	return pod
}

// await waits for a state of a pod, nil when it is gone.
func (h *liveHub) await(what string, pod *corev1.Pod, ok func(*corev1.Pod) bool) *corev1.Pod {
	h.t.Helper()
	var now *corev1.Pod
	defer func() {
		if h.t.Failed() {
			h.t.Logf("pod, %s: %+v", what, now)
		}
	}()
	livetest.Eventually(h.t, "the pod is "+what, func() bool {
		var err error
		now, err = h.api.CoreV1().Pods(pod.Namespace).Get(h.t.Context(), pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		if err != nil {
			h.t.Fatalf("pod, %s: %v", what, err)
		}
		return ok(now)
	})
	return now
}

func isRunning(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }

func isGone(p *corev1.Pod) bool { return p == nil }

func TestLiveHubRemovesHiddenAddresses(t *testing.T) {
	t.Parallel()
	h := newLiveHub(t)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	pod := h.pod("")
	a.await("the pod is bound", func() bool { return a.pods[keyOf(pod).String()].Pod.UID == pod.UID })
	said := running()
	setAddresses(said, []string{"10.1.0.7", "fd01::7"}, []string{"192.0.2.7"})
	a.says(pod, wire.PodStatus{Generation: pod.Generation, Status: said})
	shows := func(want string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			pod, host := podAndHostAddresses(&p.Status)
			return isRunning(p) && strings.Join(append(pod, host...), " ") == want
		}
	}
	h.await("shown with its addresses", pod, shows("10.1.0.7 10.1.0.7 fd01::7 192.0.2.7 192.0.2.7"))
	p.SetConsent(h.node, Consent{Addresses: limitOf(t, "fd01::/64")})
	h.await("shown with one", pod, shows("fd01::7 fd01::7 "))
	p.SetConsent(h.node, Consent{Addresses: limitOf(t, address.None)})
	h.await("shown with none", pod, shows(" "))
	p.SetConsent(h.node, Consent{Addresses: limitOf(t, "10.1.0.0/16,192.0.2.7/32")})
	h.await("shown with those of IPv4", pod, shows("10.1.0.7 10.1.0.7 192.0.2.7 192.0.2.7"))
}

func TestLivePodLifecycle(t *testing.T) {
	t.Parallel()
	h := newLiveHub(t)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	pod := h.pod("", func(p *corev1.Pod) {
		withObjects(p)
		p.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name = "kube-public-no-such"
		p.Spec.Containers[0].EnvFrom = p.Spec.Containers[0].EnvFrom[:1]
	})
	key := keyOf(pod).String()
	a.await("the pod is bound", func() bool {
		return a.pods[key].Pod.UID == pod.UID && a.objects["configmap/default/kube-public-no-such"].Missing
	})
	began := time.Now()
	a.says(pod, wire.PodStatus{Generation: pod.Generation, Status: running()})
	h.await("running", pod, isRunning)
	t.Logf("running on the hub after %s", time.Since(began))
	a.await("it was there", func() bool { return a.pods[key].Seen })

	// Others write over it, and it is put right.
	patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	if _, err := h.api.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	now := h.await("ready again", pod, func(p *corev1.Pod) bool {
		return findCondition(p.Status.Conditions, corev1.PodReady).Status == corev1.ConditionTrue
	})
	if now.Status.QOSClass != corev1.PodQOSBestEffort || findCondition(now.Status.Conditions, wire.ConditionInCluster) == nil {
		t.Errorf("status: %+v", now.Status)
	}

	if err := h.api.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.await("it is being deleted", func() bool { return a.pods[key].Pod.DeletionTimestamp != nil })
	a.says(pod, wire.PodStatus{Gone: true, Generation: pod.Generation, Status: succeeded()})
	h.await("gone", pod, isGone)
	a.await("it is withdrawn", func() bool { return len(a.pods) == 0 && len(a.objects) == 0 })
	want := map[string]int{"PATCH pods": 3, "DELETE pods": 1}
	if diff := cmp.Diff(want, p.tap.reset()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestLiveLostPodFails(t *testing.T) {
	t.Parallel()
	h := newLiveHub(t)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	pod := h.pod("")
	key := keyOf(pod).String()
	a.await("the pod is bound", func() bool { return a.pods[key].Pod.UID == pod.UID })
	a.says(pod, wire.PodStatus{Generation: pod.Generation, Status: running()})
	h.await("running", pod, isRunning)
	a.says(pod, wire.PodStatus{Generation: pod.Generation, Gone: true, Lost: true})
	now := h.await("failed", pod, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if now.Status.Reason != ReasonPodDeletedInCluster || now.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("status: %+v", now.Status)
	}
	a.await("it has ended", func() bool { return a.pods[key].Ended })
}

func TestLiveEvents(t *testing.T) {
	t.Parallel()
	h := newLiveHub(t)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	pod := h.pod("")
	key := keyOf(pod).String()
	a.await("the pod is bound", func() bool { return a.pods[key].Pod.UID == pod.UID })
	for count := range int32(2) {
		now := metav1.NewTime(time.Now().Add(time.Duration(count) * time.Minute))
		err := a.events.Put(resource.Resource{Key: key + "/e1", UID: string(pod.UID), Body: encoded(t, pulled(count+1, now))})
		if err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, fmt.Sprintf("the event is told %d times", count+1), func() bool {
			list, err := h.api.CoreV1().Events(pod.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
			return err == nil && len(list.Items) == 1 && list.Items[0].Count == count+1 && list.Items[0].Source.Component == "kubelet"
		})
	}
}

func TestLiveHubRestartDeletesNothing(t *testing.T) {
	t.Parallel()
	h := newLiveHub(t)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	cut := a.connect(p.Controller, p.sync, h.node)
	pod := h.pod("")
	key := keyOf(pod).String()
	a.await("the pod is bound", func() bool { return a.pods[key].Pod.UID == pod.UID })
	a.says(pod, wire.PodStatus{Generation: pod.Generation, Status: running()})
	h.await("running", pod, isRunning)
	a.await("it was there", func() bool { return a.pods[key].Seen })
	cut()
	p.stop()

	shut := make(chan struct{})
	p = h.start(shut)
	defer p.stop()
	defer a.connect(p.Controller, p.sync, h.node)()
	a.await("the inventories are read", func() bool { return a.complete[kindProbe] == 2 })
	a.mu.Lock()
	if a.complete[wire.KindPod] != 1 || len(a.deleted) != 0 {
		t.Errorf("before the pods are listed: deleted %v", a.deleted)
	}
	a.mu.Unlock()
	close(shut)
	a.await("the pods are listed", func() bool { return a.complete[wire.KindPod] == 2 })
	<-time.After(500 * time.Millisecond) // of rest
	a.mu.Lock()
	defer a.mu.Unlock()
	if diff := cmp.Diff(map[string]int{}, p.tap.reset()); diff != "" || len(a.deleted) != 0 {
		t.Errorf("deleted %v, written (-want +got):\n%s", a.deleted, diff)
	}
}

func TestLiveManyPods(t *testing.T) {
	t.Parallel()
	const many = 150
	h := newLiveHub(t)
	var making sync.WaitGroup
	made := make(chan *corev1.Pod, many)
	for worker := range 16 {
		making.Go(func() {
			for i := worker; i < many; i += 16 {
				made <- h.pod(fmt.Sprintf("-%d", i))
			}
		})
	}
	making.Wait()
	close(made)
	p, a := h.start(nil), newAgent(t)
	defer p.stop()
	began := time.Now()
	defer a.connect(p.Controller, p.sync, h.node)()
	a.await("all are there", func() bool { return len(a.pods) == many })
	t.Logf("%d pods are with the agent after %s", many, time.Since(began))
	began = time.Now()
	for pod := range made {
		a.says(pod, wire.PodStatus{Generation: pod.Generation, Status: running()})
	}
	a.await("all were there", func() bool {
		for _, pod := range a.pods {
			if !pod.Seen {
				return false
			}
		}
		return true
	})
	t.Logf("and %d statuses on the hub and back after %s", many, time.Since(began))
	if got := p.tap.reset()["PATCH pods"]; got != many {
		t.Errorf("%d writes for %d statuses", got, many)
	}
}
