// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const spoke = "spoke1"

// rig is a Controller on a fake API server. What its agent says is said by the test.
type rig struct {
	*Controller

	t      *testing.T
	client *fake.Clientset
	hub    *resource.Hub
	stop   func()
}

// inBubble runs a test with a rig whose time is the bubble's.
func inBubble(t *testing.T, config Config, test func(*rig), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, config, fake.NewSimpleClientset(objects...))
		defer func() { r.stop() }()
		synctest.Wait()
		test(r)
	})
}

// newRig starts a Controller. The client is one of NewSimpleClientset: that of NewClientset knows how
// to apply, which nothing here does, and makes a mapper of all resources of Kubernetes at each
// write.
func newRig(t *testing.T, config Config, client *fake.Clientset) *rig {
	t.Helper()
	r := &rig{t: t, client: client, hub: resource.NewHub()}
	serveLists(client)
	config.Client, config.Sync = client, r.hub
	if config.Objects.Namespaces == nil {
		config.Objects.Namespaces = []string{AllNamespaces}
	}
	config.Logger, config.Registerer = testr.New(t), prometheus.NewRegistry()
	k, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = k
	k.SetConsent(spoke, Consent{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Start(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Start(): %v", err)
		}
	}
	return r
}

// serveLists has the fake answer as an API server that cannot stream lists, and whose
// watches of pods bring objects of their own, not the store's.
func serveLists(client *fake.Clientset) {
	client.PrependWatchReactor("*", func(action k8stesting.Action) (bool, watch.Interface, error) {
		asked, _ := action.(k8stesting.WatchActionImpl)
		if asked.ListOptions.SendInitialEvents != nil {
			return true, nil, apierrors.NewBadRequest("lists are not streamed")
		}
		if action.GetResource().Resource != "pods" {
			return false, nil, nil
		}
		all, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace(), asked.ListOptions)
		if err != nil {
			return true, nil, err
		}
		events := make(chan watch.Event)
		copied := watch.NewProxyWatcher(events)
		go copyEvents(all, events, copied.StopChan())
		return true, copied, nil
	})
}

func copyEvents(all watch.Interface, events chan<- watch.Event, stopped <-chan struct{}) {
	defer all.Stop()
	defer close(events)
	for {
		select {
		case <-stopped:
			return
		case e := <-all.ResultChan():
			e.Object = e.Object.DeepCopyObject()
			select {
			case <-stopped:
				return
			case events <- e:
			}
		}
	}
}

// watch watches a node's pods until the returned function, or the rig, ends it.
func (r *rig) watch(node string) (stop func()) {
	end := sync.OnceFunc(r.Watch(r.t.Context(), node))
	before := r.stop
	r.stop = func() {
		end()
		before()
	}
	synctest.Wait()
	return end
}

// connect is a stream of an agent that has said all that it has.
func (r *rig) connect(node string) (cut func()) {
	done := r.Open(node)
	r.handleSynced(node)
	synctest.Wait()
	return func() {
		done()
		synctest.Wait()
	}
}

// says is a report of the agent.
func (r *rig) says(node string, pod *corev1.Pod, said wire.PodStatus) {
	r.t.Helper()
	r.handleStatus(node, resource.Resource{Key: keyOf(pod).String(), UID: string(pod.UID), Body: encoded(r.t, said)})
	synctest.Wait()
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// pod returns the hub's pod, nil when there is none.
func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return pod
}

// create has somebody make a pod.
func (r *rig) create(pod *corev1.Pod) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Pods(pod.Namespace).Create(r.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// update has somebody change a pod.
func (r *rig) update(pod *corev1.Pod) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Pods(pod.Namespace).Update(r.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// requests counts what was written since the last call, as "verb resource".
func (r *rig) requests() map[string]int {
	count := map[string]int{}
	for _, a := range r.client.Actions() {
		switch a.GetVerb() {
		case "patch", "delete", "create", "update":
			count[a.GetVerb()+" "+a.GetResource().Resource]++
		}
	}
	r.client.ClearActions()
	return count
}

// published returns the keys of what a cluster is sent of one kind.
func (r *rig) published(cluster, kind string) []string { return r.hub.Source(cluster, kind).Keys() }

// podNamed is a pod on the node of the spoke.
func podNamed(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       corev1.PodSpec{NodeName: spoke, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: early2000}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// running is the status of a pod that runs in the spoke.
func running() *corev1.PodStatus {
	return &corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.0.7", PodIPs: []corev1.PodIP{{IP: "10.1.0.7"}},
		HostIP: "192.0.2.7", HostIPs: []corev1.HostIP{{IP: "192.0.2.7"}}, StartTime: &early2000,
		QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 7,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: early2000},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: early2000},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: early2000, ObservedGeneration: 7},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: early2000},
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: later},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, Started: new(true), Image: "i", ContainerID: "cri://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: early2000}},
		}},
	}
}

// succeeded is the status of a pod that has ended in the spoke.
func succeeded() *corev1.PodStatus {
	s := running()
	s.Phase = corev1.PodSucceeded
	s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
	s.ContainerStatuses[0].Ready = false
	return s
}

func deleting(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &early2000, &grace
	}
}

func ofADaemonSet(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: new(true)}}
}

// inCluster is a pod that was in the spoke.
func inCluster(p *corev1.Pod) {
	p.Status = merge(p, wire.PodStatus{Generation: 1, Status: running()}, early2000)
}
