// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// gadget is a resource of the live test's node alone: what else runs in the spoke
// does not ask for it.
const gadget corev1.ResourceName = "spokelet.io/test-gadget"

// liveSpoke is a real API server and a Watcher on it; it may have a node that was
// made by hand.
type liveSpoke struct {
	t         *testing.T
	api       kubernetes.Interface
	node      string
	watcher   *Watcher
	summaries chan []byte
}

func startLiveSpoke(t *testing.T) *liveSpoke {
	t.Helper()
	own := livetest.Config(t, "SPOKELET_SPOKE_KUBECONFIGS")
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	s := &liveSpoke{
		t: t, api: client, summaries: make(chan []byte, 1024),
		node: fmt.Sprintf("spokelet-test-%d", time.Now().UnixNano()),
	}
	s.watcher, err = NewWatcher(WatcherConfig{
		Client: client, Version: discovery.ToServerVersionInterfaceWithContext(client.Discovery()), Logger: testr.New(t),
		HubID: s.node, NamespacePrefix: "def", Publisher: PublisherFunc(func(b []byte) { s.summaries <- b }),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	return s
}

// makeNode makes a ready node of ten gadgets for as long as the test runs.
func (s *liveSpoke) makeNode() {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	nodes := s.api.CoreV1().Nodes()
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := nodes.Delete(ctx, s.node, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	status := testNode(s.node).Status
	status.Capacity[gadget], status.Allocatable[gadget] = resource.MustParse("10"), resource.MustParse("10")
	// A patch, for the cluster's controllers write the new node as well.
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := nodes.PatchStatus(ctx, s.node, patch); err != nil {
		s.t.Fatal(err)
	}
}

func (s *liveSpoke) run() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.watcher.Run(ctx); err != nil {
			s.t.Errorf("Run(): %v", err)
		}
	})
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// makePod makes a pod on the test's node that asks for gadgets, and deletes it after the test.
func (s *liveSpoke) makePod(name, gadgets string, changes ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	asked := corev1.ResourceList{gadget: resource.MustParse(gadgets)}
	pod := testPod(name, append([]func(*corev1.Pod){onNode(s.node), func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = "spokelet.io/test/none"
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: asked, Limits: asked}
	}}, changes...)...)
	pod.UID, pod.Status = "", corev1.PodStatus{}
	pod.GenerateName, pod.Name = s.node+"-", ""
	pods := s.api.CoreV1().Pods(metav1.NamespaceDefault)
	made, err := pods.Create(s.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		_ = pods.Delete(context.WithoutCancel(s.t.Context()), made.Name, now) // it may be gone
	})
	return made
}

// await waits for a summary that has so many gadgets to give, and returns how
// many summaries it took.
func (s *liveSpoke) await(want, when string) int {
	s.t.Helper()
	within, got := time.After(livetest.Patience), ""
	for seen := 1; ; seen++ {
		select {
		case <-within:
			s.t.Fatalf("gadgets %s: got %q, want %q", when, got, want)
		case body := <-s.summaries:
			summary, err := wire.DecodeNodeSummary(body)
			if err != nil {
				s.t.Fatal(err)
			}
			if got = summary.Allocatable[string(gadget)]; got == want {
				return seen
			}
		}
	}
}

func TestAllocatableFollowsPodsOfRealSpoke(t *testing.T) {
	s := startLiveSpoke(t)
	s.makeNode()
	s.await("10", "of an empty node")
	pods := s.api.CoreV1().Pods(metav1.NamespaceDefault)

	// Is on no node yet, and no scheduler gives it to this one.
	s.makePod("waiting", "1", onNode(""), func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" })
	first := s.makePod("first", "2")
	s.await("8", "with a pod")

	ours := s.makePod("ours", "4", ofHub(s.node))
	marked := s.makePod("second", "1", ofHub("another"))
	s.await("7", "with a pod of another hub, and one of ours that is not counted")
	key, uid, ok := s.watcher.HubPod(metav1.NamespaceDefault, ours.Name)
	if !ok || key != (wire.PodKey{Namespace: "ault", Name: ours.Name}) || string(uid) != ours.Labels[translate.LabelHubPodUID] {
		t.Errorf("our pod: got %v, %q, %t", key, uid, ok)
	}
	if _, _, ok := s.watcher.HubPod(metav1.NamespaceDefault, marked.Name); ok {
		t.Error("the other hub's pod is said to be ours")
	}

	// A patch, for the cluster's controllers may write the pod as well.
	ended := []byte(`{"status":{"phase":"Succeeded"}}`)
	if _, err := pods.Patch(t.Context(), first.Name, types.MergePatchType, ended, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	s.await("9", "when a pod has ended")
	if err := pods.Delete(t.Context(), marked.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	s.await("10", "when the other one is gone")
}

func TestWatcherCoalescesBurstOfRealPods(t *testing.T) {
	s := startLiveSpoke(t)
	s.makeNode()
	s.await("10", "of an empty node")
	began := time.Now()
	for i := range 10 {
		s.makePod(fmt.Sprintf("burst-%d", i), "1")
	}
	got := s.await("0", "after ten pods")
	// The watch may tell of them one by one, as late as it likes.
	if most := 3 + int(time.Since(began)/podSpacing); got > most {
		t.Errorf("%d summaries for ten pods at once, want no more than %d", got, most)
	}
}
