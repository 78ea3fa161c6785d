// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	gpuNode = spoke + ".gpu"
	stdNode = spoke + ".std"
)

func bound(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = node }
}

func TestSourceIsCompleteOnlyWhenEveryNodeIsListed(t *testing.T) {
	cases := map[string]struct {
		reason string
		held   string // the node whose list is late
	}{
		"a group's is late":         {"an empty list would end the pods of the group", gpuNode},
		"the cluster's own is late": {"an empty list would end the pods of the rest", spoke},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewSimpleClientset(podNamed("a"), podNamed("g", bound(gpuNode)), podNamed("s", bound(stdNode)))
			held := gate{make(chan struct{})}
			client.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
				if selects(a, tc.held) {
					return held.hold(a)
				}
				return false, nil, nil
			})
			r := newRig(t, Config{}, client)
			defer r.stop()
			r.hub.Publish(kindProbe, nil)
			a := newAgent(t)
			r.hub.Source(spoke, kindProbe).Complete()
			for _, node := range []string{gpuNode, stdNode} {
				r.ExpectNode(node)
			}
			// The fake answers nobody else while it holds one up, which comes last for that.
			first := slices.DeleteFunc([]string{spoke, stdNode, gpuNode}, func(node string) bool { return node == tc.held })
			defer r.Watch(t.Context(), first[0])()
			r.awaitPods(first[0])
			defer r.Watch(t.Context(), first[1])()
			r.awaitPods(first[1])
			defer r.Watch(t.Context(), tc.held)()
			// The agent has something from a hub that was before.
			a.mirrors[wire.KindPod].Hold(resource.RefOf(resource.Resource{Key: "default/old"}))
			defer a.connect(r.Controller, r.hub, spoke)()
			a.await("what is known has come", func() bool { return a.complete[kindProbe] == 1 && len(a.pods) == 2 })
			a.mu.Lock()
			if a.complete[wire.KindPod] != 0 || len(a.deleted) != 0 {
				t.Errorf("%s: the agent has deleted %v", tc.reason, a.deleted)
			}
			a.mu.Unlock()
			close(held.opened)
			a.await("all lists are there", func() bool { return a.complete[wire.KindPod] == 1 && len(a.pods) == 3 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if diff := cmp.Diff([]string{wire.KindPod + " default/old"}, a.deleted); diff != "" {
				t.Errorf("deleted (-want +got):\n%s", diff)
			}
			for key, want := range map[string]string{"default/a": "", "default/g": "gpu", "default/s": "std"} {
				if got := a.pods[key].Group; got != want {
					t.Errorf("group of %s: got %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestForgottenNodeDoesNotDelayCompletion(t *testing.T) {
	r := newRig(t, Config{}, fake.NewSimpleClientset(podNamed("a")))
	defer r.stop()
	r.hub.Publish(kindProbe, nil)
	a := newAgent(t)
	r.hub.Source(spoke, kindProbe).Complete()
	r.ExpectNode(gpuNode)
	defer r.Watch(t.Context(), spoke)()
	r.awaitPods(spoke)
	a.mirrors[wire.KindPod].Hold(resource.RefOf(resource.Resource{Key: "default/old"}))
	defer a.connect(r.Controller, r.hub, spoke)()
	a.await("what is known has come", func() bool { return a.complete[kindProbe] == 1 && len(a.pods) == 1 })
	a.mu.Lock()
	if a.complete[wire.KindPod] != 0 {
		t.Error("all is said before the pods of a group are known")
	}
	a.mu.Unlock()
	r.RemoveNode(gpuNode)
	a.await("all is said", func() bool { return a.complete[wire.KindPod] == 1 && len(a.deleted) == 1 })
}

func TestForeignNodeDoesNotDelayGroupPods(t *testing.T) {
	r := newRig(t, Config{}, fake.NewSimpleClientset(podNamed("a"), podNamed("g", bound(gpuNode)), podNamed("s", bound(stdNode))))
	defer r.stop()
	r.hub.Publish(kindProbe, nil)
	a := newAgent(t)
	a.mirrors[wire.KindPod].Hold(resource.RefOf(resource.Resource{Key: "default/old"}))
	r.hub.Source(spoke, kindProbe).Complete()
	complete := func(want int, when string) {
		t.Helper()
		a.mu.Lock()
		defer a.mu.Unlock()
		if got := a.complete[wire.KindPod]; got != want {
			t.Errorf("%s: all was said %d times, want %d", when, got, want)
		}
	}
	r.ExpectNode(gpuNode)
	r.ExpectNode(stdNode)
	r.RemoveNode(spoke)
	defer a.connect(r.Controller, r.hub, spoke)()
	defer r.Watch(t.Context(), gpuNode)()
	r.awaitPods(gpuNode)
	a.await("what is known has come", func() bool { return a.complete[kindProbe] == 1 && len(a.pods) == 1 })
	complete(0, "before the pods of each group are known")
	defer r.Watch(t.Context(), stdNode)()
	a.await("all is said", func() bool { return a.complete[wire.KindPod] == 1 && len(a.pods) == 2 && len(a.deleted) == 1 })
	// The name is free.
	r.ExpectNode(spoke)
	defer r.Watch(t.Context(), spoke)()
	a.await("the pods of the cluster's own node come", func() bool { return len(a.pods) == 3 })
}

func TestSourceIsNeverCompleteWithoutNodes(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.Open(spoke)()
		r.RemoveNode(spoke)
		r.ExpectNode(gpuNode)
		r.RemoveNode(gpuNode)
		if n := r.getCluster(spoke); n.wasComplete {
			t.Error("all pods are said to be absent")
		}
		r.watch(gpuNode)
		if n := r.getCluster(spoke); !n.wasComplete {
			t.Error("the pods of a group wait for somebody else's")
		}
	}, podNamed("g", bound(gpuNode)))
}

func TestStateOfForeignNodeIsDeleted(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(*rig)
	}{
		"wanted no more": {reason: "its record is not accepted any more", end: func(r *rig) { r.ExpectNode(spoke) }},
		"forgotten":      {reason: "its record is gone", end: func(r *rig) { r.RemoveCluster(spoke) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.RemoveNode(spoke)
				if r.getCluster(spoke) == nil {
					t.Error("an agent that connects later waits for somebody else's node")
				}
				tc.end(r)
				if r.getCluster(spoke) != nil {
					t.Errorf("%s: it is held", tc.reason)
				}
			})
		})
	}
}

func TestNoResponseStatusWaitsForTheRequest(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.ExpectNode(gpuNode)
		r.watch(spoke)
		defer r.Open(spoke)()
		pass := func() {
			<-time.After(3 * responseTimeout)
			synctest.Wait()
		}
		pass()
		if got := r.pod("a").Status.Reason; got != "" || r.pod("leaving") == nil {
			t.Errorf("before the agent was asked: reason %q, the pod that leaves is there: %t", got, r.pod("leaving") != nil)
		}
		r.RemoveNode(gpuNode)
		pass()
		if got := r.pod("a").Status.Reason; got != ReasonNotSent || r.pod("leaving") != nil {
			t.Errorf("after it: reason %q, the pod that leaves is there: %t", got, r.pod("leaving") != nil)
		}
	}, podNamed("a"), podNamed("leaving", deleting(30)))
}

func (r *rig) awaitPods(node string) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(r.Pods(node)) > 0, nil
	})
	if err != nil {
		r.t.Fatalf("pods of %s are not listed", node)
	}
}

// selects tells whether a list is of the pods of a node.
func selects(a k8stesting.Action, node string) bool {
	list, ok := a.(k8stesting.ListAction)
	if !ok {
		return false
	}
	value, found := list.GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
	return found && value == node
}

func TestGroupChangeLeavesOtherGroupsAlone(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		stop := r.watch(gpuNode)
		r.connect(spoke)
		if diff := cmp.Diff([]string{"default/a", "default/g"}, r.published(spoke, wire.KindPod)); diff != "" {
			t.Errorf("published (-want +got):\n%s", diff)
		}
		r.watch(stdNode)
		stop()
		r.RemoveNode(gpuNode)
		if diff := cmp.Diff([]string{"default/a", "default/g", "default/s"}, r.published(spoke, wire.KindPod)); diff != "" {
			t.Errorf("published when one group came and another went (-want +got):\n%s", diff)
		}
	}, podNamed("a"), podNamed("g", bound(gpuNode)), podNamed("s", bound(stdNode)))
}

func TestNodeListsItsOwnPodsOnly(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.watch(gpuNode)
		for node, want := range map[string]string{spoke: "a", gpuNode: "g"} {
			pods := r.Pods(node)
			if len(pods) != 1 || pods[0].Name != want {
				t.Errorf("pods of %s: %d, want %s", node, len(pods), want)
			}
			for _, name := range []string{"a", "g"} {
				if _, ok := r.Pod(node, "default", name); ok != (name == want) {
					t.Errorf("pod %s of %s: found is %t", name, node, ok)
				}
			}
		}
		r.connect(spoke)
		r.says(spoke, r.pod("g"), wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("g").Status.Phase; got != corev1.PodRunning {
			t.Errorf("the status of a group's pod is not written: %s", got)
		}
	}, podNamed("a"), podNamed("g", bound(gpuNode)))
}

func TestPodRecreatedOnAnotherNodeOfTheClusterReplacesTheOld(t *testing.T) {
	before := podNamed("a", func(p *corev1.Pod) { p.UID, p.ResourceVersion = "first", "5" })
	after := podNamed("a", bound(gpuNode), func(p *corev1.Pod) { p.UID, p.ResourceVersion = "second", "9" })
	late := before.DeepCopy()
	late.ResourceVersion = "7"
	cases := map[string]struct {
		reason string
		do     func(own, gpu podEvents)
	}{
		"as it was":             {"the watches agree", func(own, gpu podEvents) { own.add(before); own.remove(late); gpu.add(after) }},
		"its end comes late":    {"it is of the pod before", func(own, gpu podEvents) { own.add(before); gpu.add(after); own.remove(late) }},
		"its change comes late": {"it is of the pod before", func(own, gpu podEvents) { own.add(before); gpu.add(after); own.add(late); own.remove(late) }},
		"it is listed late":     {"the list is of before", func(own, gpu podEvents) { gpu.add(after); own.list(late) }},
		"it is gone from a list": {
			"the list is of one node", func(own, gpu podEvents) { gpu.add(after); own.list() },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.watch(spoke)
				r.watch(gpuNode)
				n := r.getCluster(spoke)
				tc.do(podEvents{r.podHandler(n, spoke)}, podEvents{r.podHandler(n, gpuNode)})
				pod, ok := r.Pod(gpuNode, "default", "a")
				if !ok || pod.UID != "second" || len(r.Pods(spoke)) != 0 || r.IsIdle(gpuNode) {
					t.Errorf("%s: found %t, %+v", tc.reason, ok, pod)
				}
				if ref, ok := r.hub.Source(spoke, wire.KindPod).Ref("default/a"); !ok || ref.UID != "second" {
					t.Errorf("%s: published is %t, %+v", tc.reason, ok, ref)
				}
			})
		})
	}
}

// podEvents are what the watch of one node brings.
type podEvents struct{ watcher.Handler }

func (e podEvents) add(pod *corev1.Pod)    { e.HandleEvent(pod.DeepCopy(), false) }
func (e podEvents) remove(pod *corev1.Pod) { e.HandleEvent(pod.DeepCopy(), true) }

func (e podEvents) list(pods ...*corev1.Pod) {
	e.StartSync()
	for _, pod := range pods {
		e.add(pod)
	}
	e.FinishSync("")
}

func TestGroupNodeIsIdleWithoutPods(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		told := 0
		r.OnIdle(func() { told++ })
		if !r.IsIdle(gpuNode) {
			t.Error("a node that nobody expects is not idle")
		}
		r.ExpectNode(gpuNode)
		if r.IsIdle(gpuNode) {
			t.Error("a node is idle before its pods are known")
		}
		r.watch(gpuNode)
		if r.IsIdle(gpuNode) || told != 0 {
			t.Errorf("a node with a pod is idle, told %d times", told)
		}
		if err := r.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "g"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second)
		if !r.IsIdle(gpuNode) || told == 0 {
			t.Errorf("idle after the last pod: %t, told %d times", r.IsIdle(gpuNode), told)
		}
	}, podNamed("g", bound(gpuNode)))
}

func TestForgottenClusterStartsAfresh(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		stop := r.watch(gpuNode)
		r.RemoveCluster(spoke)
		r.ExpectNode(gpuNode)
		stop()
		if r.IsIdle(gpuNode) {
			t.Error("the pods of a group are known before they are listed anew")
		}
		r.watch(spoke)
		r.watch(gpuNode)
		if got := r.published(spoke, wire.KindPod); len(got) != 1 {
			t.Errorf("published: %v", got)
		}
	}, podNamed("g", bound(gpuNode)))
}
