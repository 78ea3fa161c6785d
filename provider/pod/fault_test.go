// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// What is here are faults that other virtual nodes have: each test fails without the
// cure of one of them.

func TestStatusIsWrittenHoweverOftenWritesFail(t *testing.T) {
	const often = 100
	cases := map[string]struct {
		reason, verb string
		change       func(*corev1.Pod)
		said         wire.PodStatus
		want         map[string]int
	}{
		"a status": {
			reason: "the pod runs, and nobody would ever know", verb: "patch", change: func(*corev1.Pod) {},
			said: wire.PodStatus{Generation: 1, Status: running()}, want: map[string]int{"patch pods": often + 1},
		},
		"the end of a deletion": {
			reason: "the pod would be Terminating for ever", verb: "delete", change: deleting(30),
			said: wire.PodStatus{Gone: true}, want: map[string]int{"patch pods": 1, "delete pods": often + 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				left := often
				r.client.PrependReactor(tc.verb, "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
					left--
					return left >= 0, nil, apierrors.NewServiceUnavailable("boom")
				})
				r.watch(spoke)
				defer r.connect(spoke)()
				r.requests()
				r.says(spoke, podNamed("a"), tc.said)
				<-time.After(often * maxRetry)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, r.requests()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}, podNamed("a", tc.change))
		})
	}
}

func TestDisconnectFailsNoPod(t *testing.T) {
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		said   *wire.PodStatus
		phase  corev1.PodPhase
	}{
		"a pod that runs": {
			reason: "it runs on", pod: podNamed("a"), said: &wire.PodStatus{Generation: 1, Status: running()}, phase: corev1.PodRunning,
		},
		"a pod that a hub process before this one knew": {
			reason: "that nothing is said of it is no word of its end", pod: podNamed("a", inCluster), phase: corev1.PodRunning,
		},
		"a pod that was never sent": {
			reason: "it waits for its cluster", pod: podNamed("a"), phase: corev1.PodPending,
		},
		"a pod that could not be made": {
			reason: "it is tried again, whatever its restartPolicy says", pod: podNamed("a", func(p *corev1.Pod) {
				p.Spec.RestartPolicy = corev1.RestartPolicyNever
			}),
			said: &wire.PodStatus{Reason: "CreateFailed", Message: "boom", Retried: true}, phase: corev1.PodPending,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(r *rig) {
				r.watch(spoke)
				cut := r.connect(spoke)
				if tc.said != nil {
					r.says(spoke, tc.pod, *tc.said)
				}
				cut()
				for range 24 {
					<-time.After(time.Hour)
					synctest.Wait()
					if got := r.pod("a").Status.Phase; got != tc.phase {
						t.Fatalf("%s: phase %s", tc.reason, got)
					}
				}
				if got := r.requests()["delete pods"]; got != 0 {
					t.Errorf("%s: it was deleted", tc.reason)
				}
			}, tc.pod)
		})
	}
}

func TestStaleReportIsNotWrittenAfterDisconnect(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		cut := r.connect(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		cut()
		defer r.Open(spoke)() // by an agent that has said nothing yet
		synctest.Wait()
		r.requests()
		r.notReady("a")
		if diff := cmp.Diff(map[string]int{"update pods": 1}, r.requests()); diff != "" {
			t.Errorf("the pod may have ended since (-want +got):\n%s", diff)
		}
		r.handleSynced(spoke)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("now it is known to run (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

// evict is what the hub's taint eviction controller does to a pod of a node that is
// unreachable.
func (r *rig) evict(name string) {
	r.t.Helper()
	pod := r.pod(name)
	pod.Status.Conditions = append(pod.Status.Conditions, condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager"))
	deleting(30)(pod)
	r.update(pod)
}

func TestPodEvictedDuringDisconnectEndsAfterReconnect(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		cut := r.connect(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		cut()
		r.requests()
		r.evict("a")
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"update pods": 1}, r.requests()); diff != "" {
			t.Errorf("while the cluster is away, where it may run (-want +got):\n%s", diff)
		}
		sent, ok := r.loadPod(spoke, "default/a")
		if !ok {
			t.Fatal("the pod is withdrawn: its end would be that of one deleted by force")
		}
		if p, err := wire.DecodePod(sent.Key, sent.Body); err != nil || p.Pod.DeletionTimestamp == nil || *p.Pod.DeletionGracePeriodSeconds != 30 {
			t.Errorf("the agent is not told of the deletion: %+v, %v", p, err)
		}
		var got corev1.PodStatus
		r.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			pod, err := r.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "default", "a")
			if err == nil {
				got = pod.(*corev1.Pod).Status
			}
			return false, nil, err
		})
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Gone: true, Status: succeeded()})
		if why := findCondition(got.Conditions, corev1.DisruptionTarget); got.Phase != corev1.PodSucceeded || why == nil || why.Status != corev1.ConditionTrue {
			t.Errorf("the last status does not say how and why it ended: %+v", got)
		}
		if r.pod("a") != nil {
			t.Error("its end is not confirmed")
		}
	}, podNamed("a"))
}

func TestDeletionIsConfirmedOnceWhenTheWatchLags(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.client.PrependReactor("delete", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, nil // it is gone, and the watch does not have it yet
		})
		r.watch(spoke)
		defer r.connect(spoke)()
		r.requests()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Gone: true, Status: succeeded()})
		r.notReady("a")
		if n := r.requests()["delete pods"]; n != 1 {
			t.Errorf("it was confirmed %d times", n)
		}
	}, podNamed("a", deleting(30)))
}

func TestDaemonSetPodStaysPending(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		// Others write over its status, as the node controller does: it is told again and
		// no more often.
		for range 3 {
			r.requests()
			r.notReady("a")
			<-time.After(time.Hour)
			synctest.Wait()
			if writes := r.requests()["patch pods"]; writes > 1 {
				t.Errorf("%d writes after one of others", writes)
			}
		}
		// One that is Failed is deleted by its controller, and made again, without end.
		if got := r.pod("a").Status; got.Phase != corev1.PodPending || got.Reason != ReasonDaemonSetPod || got.Message == "" {
			t.Errorf("it is %s for %q, %q", got.Phase, got.Reason, got.Message)
		}
	}, podNamed("a", ofADaemonSet))
}

// listed are the lists and watches since the last call, each as "verb resource in
// namespace where selector at version".
func (r *rig) listed() map[string]int {
	count := map[string]int{}
	for _, a := range r.client.Actions() {
		var where k8stesting.ListRestrictions
		version := ""
		switch a := a.(type) {
		case k8stesting.ListActionImpl:
			where, version = a.ListRestrictions, a.ListOptions.ResourceVersion
		case k8stesting.WatchActionImpl:
			if a.ListOptions.SendInitialEvents != nil {
				continue // which the fake refuses
			}
			where = k8stesting.ListRestrictions{Fields: a.WatchRestrictions.Fields, Labels: a.WatchRestrictions.Labels}
		default:
			continue
		}
		count[fmt.Sprintf("%s %s in %q where %s at %q", a.GetVerb(), a.GetResource().Resource, a.GetNamespace(), where.Fields, version)]++
	}
	r.client.ClearActions()
	return count
}

func TestOnlyReferencedObjectsAreRead(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.listed()
		r.watch(spoke)
		// One more pod that refers to the same costs nothing, on whatever node.
		r.create(podNamed("b", withObjects))
		r.create(podNamed("c", withObjects, onNode("spoke2")))
		r.watch("spoke2")
		// Lists are at no version: what a cache of the API server has may be old.
		want := map[string]int{}
		for _, verb := range []string{"list", "watch"} {
			want[verb+` pods in "" where spec.nodeName=spoke1 at ""`] = 1
			want[verb+` pods in "" where spec.nodeName=spoke2 at ""`] = 1
			want[verb+` configmaps in "default" where metadata.name=settings at ""`] = 1
			want[verb+` secrets in "default" where metadata.name=keys at ""`] = 1
		}
		if diff := cmp.Diff(want, r.listed()); diff != "" {
			t.Errorf("memory would follow what others keep on the hub (-want +got):\n%s", diff)
		}
	}, podNamed("a", withObjects), settings(), keys())
}

// ending is a watch that says when it was stopped.
type ending struct {
	watch.Interface
	stopped chan struct{}
	once    sync.Once
}

func (e *ending) Stop() {
	e.once.Do(func() { close(e.stopped) })
	e.Interface.Stop()
}

func TestObjectWatchStopsWithItsLastReference(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		w := &ending{Interface: watch.NewFake(), stopped: make(chan struct{})}
		r.client.PrependWatchReactor("secrets", func(action k8stesting.Action) (bool, watch.Interface, error) {
			asked, _ := action.(k8stesting.WatchActionImpl)
			return asked.ListOptions.SendInitialEvents == nil, w, nil
		})
		r.watch(spoke)
		r.vanish("a")
		select {
		case <-w.stopped:
		default:
			t.Error("nobody refers to it, and it is watched")
		}
	}, podNamed("a", withObjects), settings(), keys())
}

func TestPodIsPublishedToItsOwnClusterOnly(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.watch("spoke2")
		if _, ok := r.Pod(spoke, "default", "a"); !ok {
			t.Error("its node does not know it")
		}
		if _, ok := r.Pod("spoke2", "default", "a"); ok || len(r.Pods("spoke2")) != 1 {
			t.Error("another node has it: who may ask that one would reach it")
		}
	}, podNamed("a"), podNamed("b", onNode("spoke2")))
}

func TestWritesNameTheUIDOfThePod(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		r.client.ClearActions()
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true, Status: succeeded()})
		var patched, released bool
		for _, a := range r.client.Actions() {
			switch a := a.(type) {
			case k8stesting.PatchActionImpl:
				var body corev1.Pod
				if err := json.Unmarshal(a.Patch, &body); err != nil || body.UID != "uid-of-a" {
					t.Errorf("patch %s would be of any pod of the name: %v", a.Patch, err)
				}
				patched = true
			case k8stesting.DeleteActionImpl:
				if p := a.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != "uid-of-a" {
					t.Errorf("deletion %+v would be of any pod of the name", a.DeleteOptions)
				}
				released = true
			}
		}
		if !patched || !released {
			t.Errorf("patched %t, released %t: the test proves nothing", patched, released)
		}
	}, podNamed("a", deleting(30)))
}

func TestObjectSourceIsCompleteOnlyWhenEachObjectIsKnown(t *testing.T) {
	client := fake.NewSimpleClientset(podNamed("a", withObjects), settings(), keys())
	var opened atomic.Bool
	client.PrependReactor("list", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
		return !opened.Load(), nil, errors.New("boom")
	})
	r := newRig(t, Config{}, client)
	defer r.stop()
	a := newAgent(t)
	const old = "secret/default/old"
	a.mirrors[wire.KindPodObject].Hold(resource.RefOf(resource.Resource{Key: old}))
	defer a.connect(r.Controller, r.hub, spoke)()
	defer r.Watch(t.Context(), spoke)()
	a.await("one of two objects is known", func() bool {
		return a.complete[wire.KindPod] == 1 && a.objects["configmap/default/settings"].Text != nil
	})
	// The fake keeps nothing for a watch that begins later.
	a.await("the pods are watched", func() bool {
		return slices.ContainsFunc(client.Actions(), func(a k8stesting.Action) bool { return a.Matches("watch", "pods") })
	})
	// Each kind is served in turn: what was to be said before these has been.
	for _, name := range []string{"b", "c"} {
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), podNamed(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		a.await("a pod that came later", func() bool { return a.pods["default/"+name].Pod.Name == name })
	}
	a.mu.Lock()
	if a.complete[wire.KindPodObject] != 0 || len(a.deleted) != 0 {
		t.Errorf("half of what pods refer to is taken for all: deleted %v", a.deleted)
	}
	a.mu.Unlock()
	opened.Store(true)
	a.await("all are known", func() bool { return a.complete[wire.KindPodObject] == 1 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if diff := cmp.Diff([]string{wire.KindPodObject + " " + old}, a.deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}
