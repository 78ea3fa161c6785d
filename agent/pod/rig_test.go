// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/internal/testing/livetest"
	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spokeName is the cluster's name on the hub.
const spokeName = "spoke"

// cluster is a real API server, with a namespace of the hub of its own. No kubelet
// is needed: the pods are too big for any node, and the test does to their status
// what a kubelet would.
type cluster struct {
	t         *testing.T
	cfg       *rest.Config
	kube      kubernetes.Interface
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, cfg: livetest.Config(t, "SPOKELET_TEST_KUBECONFIG"), namespace: "pods-" + rand.String(8)}
	var err error
	if c.kube, err = kubernetes.NewForConfig(c.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.clear)
	return c
}

// clear leaves nothing that waits for a kubelet.
func (c *cluster) clear() {
	ctx := context.WithoutCancel(c.t.Context())
	_ = c.kube.CoreV1().Pods(c.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
	_ = c.kube.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{})
}

// makeNamespace makes the namespace before a pod does.
func (c *cluster) makeNamespace(labels map[string]string) {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: labels}}
	if _, err := c.kube.CoreV1().Namespaces().Create(c.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	// A controller makes it too, where there is one, but nobody waits for that.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: defaultAccount}}
	_, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Create(c.t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// eventually waits until what is asked for is so.
func (c *cluster) eventually(what string, so func() bool) {
	c.t.Helper()
	livetest.Eventually(c.t, what, so)
}

// pod reads a pod of the spoke; nil when there is none.
func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.kube.CoreV1().Pods(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// appears waits for the pod of the spoke that runs for a UID of the hub.
func (c *cluster) appears(name string, uid types.UID) *corev1.Pod {
	c.t.Helper()
	var pod *corev1.Pod
	c.eventually("pod "+name+" is in the spoke", func() bool {
		pod = c.pod(name)
		return pod != nil && newLiveState(pod).hubUID == uid
	})
	return pod
}

// bind gives a pod to a node that is not there, as a scheduler would: it is from now
// on for a kubelet to end it.
func (c *cluster) bind(name string) {
	c.t.Helper()
	// Kubernetes ends the pods of a node of which the first pod was seen 40 s ago: each has its own.
	node := corev1.ObjectReference{Kind: "Node", Name: name + "-" + c.namespace}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: node}
	if err := c.kube.CoreV1().Pods(c.namespace).Bind(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// report writes a phase, as a kubelet would.
func (c *cluster) report(name string, phase corev1.PodPhase) {
	c.t.Helper()
	patch := []byte(`{"status":{"phase":"` + string(phase) + `","message":"so says the test"}}`)
	_, err := c.kube.CoreV1().Pods(c.namespace).Patch(c.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		c.t.Fatal(err)
	}
}

// end removes a pod at once, as a kubelet does when its containers have ended.
func (c *cluster) end(name string) {
	c.t.Helper()
	err := c.kube.CoreV1().Pods(c.namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err != nil {
		c.t.Fatal(err)
	}
}

// dataOf a ConfigMap of the spoke, nil when there is none.
func (c *cluster) dataOf(name string) map[string]string {
	c.t.Helper()
	cm, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return cm.Data
}

// hub plays the hub for engines of one cluster, over the real Sync.
type hub struct {
	t    *testing.T
	c    *cluster
	sync *resource.Hub

	mu       sync.Mutex
	statuses map[string]told
	events   map[string]wire.PodEvent
}

type told struct {
	uid types.UID
	wire.PodStatus
}

func newHub(c *cluster) *hub {
	h := &hub{t: c.t, c: c, sync: resource.NewHub(), statuses: map[string]told{}, events: map[string]wire.PodEvent{}}
	h.sync.Publish(wire.KindPod, nil)
	h.sync.Publish(wire.KindPodObject, nil)
	h.sync.Publish(wire.KindPodToken, nil)
	h.sync.Publish(wire.KindPodForced, nil)
	h.sync.Mirror(wire.KindPodStatus, resource.HubReceiver{Put: h.putStatus})
	h.sync.Mirror(wire.KindPodEvent, resource.HubReceiver{Put: h.putEvent})
	return h
}

func (h *hub) putStatus(_ string, r resource.Resource) {
	s, err := wire.DecodePodStatus(r.Body)
	if err != nil {
		h.t.Errorf("status of %s: %v", r.Key, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statuses[r.Key] = told{uid: types.UID(r.UID), PodStatus: s}
}

func (h *hub) putEvent(_ string, r resource.Resource) {
	ev, err := wire.DecodePodEvent(r.Body)
	if err != nil {
		h.t.Errorf("event %s: %v", r.Key, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events[r.Key] = ev
}

// complete says that what was published is all there is.
func (h *hub) complete() {
	h.sync.Source(spokeName, wire.KindPod).Complete()
	h.sync.Source(spokeName, wire.KindPodObject).Complete()
	h.sync.Source(spokeName, wire.KindPodToken).Complete()
}

func (h *hub) put(kind, key, uid string, body any) {
	h.t.Helper()
	raw, err := json.Marshal(body)
	if p, ok := body.(wire.Pod); ok {
		raw, err = p.Encode()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.sync.Source(spokeName, kind).Put(resource.Resource{Key: key, UID: uid, Body: raw}); err != nil {
		h.t.Fatal(err)
	}
}

// want publishes a pod, and what it refers to as missing unless it was published.
func (h *hub) want(p wire.Pod) {
	h.t.Helper()
	key := wire.PodKey{Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	objects := h.sync.Source(spokeName, wire.KindPodObject)
	known := map[string]bool{}
	for _, k := range objects.Keys() {
		known[k] = true
	}
	for _, ref := range podrefs.Of(&p.Pod) {
		k := wire.PodObjectKey{Kind: ref.Kind, Namespace: key.Namespace, Name: ref.Name}
		if !known[k.String()] {
			h.object(k, wire.PodObject{Missing: true})
		}
	}
	h.put(wire.KindPod, key.String(), string(p.Pod.UID), p)
}

func (h *hub) object(key wire.PodObjectKey, o wire.PodObject) {
	h.t.Helper()
	h.put(wire.KindPodObject, key.String(), "", o)
}

func (h *hub) removePod(name string) {
	h.sync.Source(spokeName, wire.KindPod).Delete(h.key(name).String())
}

func (h *hub) key(name string) wire.PodKey {
	return wire.PodKey{Namespace: h.c.namespace, Name: name}
}

func (h *hub) configMap(name string) wire.PodObjectKey {
	return wire.PodObjectKey{Kind: wire.PodObjectConfigMap, Namespace: h.c.namespace, Name: name}
}

func (h *hub) status(name string) told {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.statuses[h.key(name).String()]
}

// is waits until the status of a pod satisfies.
func (h *hub) is(name, what string, so func(told) bool) told {
	h.t.Helper()
	var s told
	defer func() {
		if h.t.Failed() {
			h.t.Logf("status of %s: %+v", name, s)
		}
	}()
	h.c.eventually(name+" "+what, func() bool { s = h.status(name); return so(s) })
	return s
}

// refused waits for a reason.
func (h *hub) refused(name, reason string) told {
	h.t.Helper()
	return h.is(name, "is refused for "+reason, func(s told) bool { return s.Reason == reason })
}

func (h *hub) reasons() map[string]wire.PodEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.events)
}

// pod is one of the hub's, too big for any node.
func (h *hub) pod(name string, change ...func(*wire.Pod)) wire.Pod {
	p := wire.Pod{SplitLabel: poolLabel, Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.c.namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1,
			Labels: map[string]string{"app": name},
		},
		Spec: corev1.PodSpec{
			NodeName:                      spokeName,
			TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{
				Name: "main", Image: "spokelet.io/test/busybox:latest",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("5000")}},
			}},
		},
	}}
	for _, f := range change {
		f(&p)
	}
	return p
}

// deleting is a pod that was deleted on the hub.
func deleting(grace int64) func(*wire.Pod) {
	return func(p *wire.Pod) {
		p.Pod.DeletionTimestamp = new(metav1.NewTime(time.Unix(1_700_000_000, 0)))
		p.Pod.DeletionGracePeriodSeconds = &grace
	}
}

// reading refers to a ConfigMap.
func reading(name string) func(*wire.Pod) {
	return func(p *wire.Pod) {
		p.Pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}}
	}
}

// agent is a running engine.
type agent struct {
	*Engine
	stop func()
}

// start runs an engine and connects it to the hub.
func (h *hub) start(change ...func(*Config)) *agent {
	h.t.Helper()
	cfg := Config{REST: rest.CopyConfig(h.c.cfg), HubID: h.c.namespace, Namespace: "spokelet-agent"}
	for _, f := range change {
		f(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			h.t.Errorf("run: %v", err)
		}
	})
	disconnect := h.connect(e)
	a := &agent{Engine: e}
	a.stop = sync.OnceFunc(func() {
		disconnect()
		cancel()
		wg.Wait()
	})
	h.t.Cleanup(a.stop)
	return a
}

// connect joins an engine to the hub.
func (h *hub) connect(e *Engine) (cut func()) {
	h.t.Helper()
	door, err := resource.NewAgent(e.Sources(), e.Mirrors())
	if err != nil {
		h.t.Fatal(err)
	}
	return resourcetest.Connect(h.t, h.sync, spokeName, door)
}
