// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestPodStatusFollowsReports(t *testing.T) {
	cases := map[string]struct {
		reason     string
		pod        *corev1.Pod
		daemonSets bool
		sent       bool
		want       map[string]int
		says       string
	}{
		"a new pod": {
			reason: "it is the agent's to speak",
			pod:    podNamed("a"), sent: true, want: map[string]int{},
		},
		"a pod of another node": {
			reason: "the fake does not select", pod: podNamed("a", func(p *corev1.Pod) { p.Spec.NodeName = "other" }), want: map[string]int{},
		},
		"a DaemonSet's pod": {
			reason: "it is told once",
			pod:    podNamed("a", ofADaemonSet), want: map[string]int{"patch pods": 1}, says: ReasonDaemonSetPod,
		},
		"a DaemonSet's pod, if the hub takes them": {
			reason: "the option asks for it",
			pod:    podNamed("a", ofADaemonSet), daemonSets: true, sent: true, want: map[string]int{},
		},
		"a DaemonSet's pod that was taken before": {
			reason: "its end is the agent's to tell",
			pod:    podNamed("a", ofADaemonSet, inCluster), sent: true, want: map[string]int{},
		},
		"a DaemonSet's pod that is being deleted": {
			reason: "nothing runs that could take its grace",
			pod:    podNamed("a", ofADaemonSet, deleting(30)), want: map[string]int{"patch pods": 1, "delete pods": 1},
		},
		"a pod of an owner that calls itself DaemonSet": {
			reason: "it is another's",
			pod:    podNamed("a", ofADaemonSet, func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "shop/v1" }),
			sent:   true, want: map[string]int{},
		},
		"a mirror pod": {
			reason: "no kubelet here has it from a file",
			pod:    podNamed("a", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
			want:   map[string]int{"patch pods": 1}, says: ReasonMirrorPod,
		},
		"a pod that is being deleted": {
			reason: "an agent may have it from an earlier hub process",
			pod:    podNamed("a", deleting(30)), sent: true, want: map[string]int{},
		},
		"a pod that has ended": {
			reason: "its status is history",
			pod:    podNamed("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), sent: true, want: map[string]int{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{DaemonSets: tc.daemonSets}, func(r *rig) {
				r.requests()
				r.watch(spoke)
				r.connect(spoke)
				<-time.After(time.Hour)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, r.requests()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				if sent := len(r.published(spoke, wire.KindPod)) == 1; sent != tc.sent {
					t.Errorf("%s: sent is %t", tc.reason, sent)
				}
				if pod := r.pod("a"); pod != nil && pod.Status.Reason != tc.says {
					t.Errorf("%s: reason %q", tc.reason, pod.Status.Reason)
				}
			}, tc.pod)
		})
	}
}

func TestPublishedPodHasNoStatus(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		sent, ok := r.loadPod(spoke, "default/a")
		if !ok {
			t.Fatal("the pod is not loaded")
		}
		got, err := wire.DecodePod(sent.Key, sent.Body)
		if err != nil {
			t.Fatal(err)
		}
		pod := r.pod("a")
		want := wire.Pod{Pod: corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, Seen: true}
		want.Pod.ManagedFields = nil
		if diff := cmp.Diff(want, got); diff != "" || sent.UID != string(pod.UID) {
			t.Errorf("of uid %s (-want +got):\n%s", sent.UID, diff)
		}
		if _, ok := r.loadPod("spoke2", "default/a"); ok {
			t.Error("another cluster may have it too")
		}
	}, podNamed("a", inCluster))
}

func TestStatusIsWrittenOnceAtOnce(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.connect(spoke)
		r.requests()
		began := time.Now()
		for range 3 {
			r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		}
		if got := r.pod("a").Status; got.Phase != corev1.PodRunning || time.Since(began) != 0 {
			t.Errorf("after %s the phase is %s", time.Since(began), got.Phase)
		}
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if sent, ok := r.loadPod(spoke, "default/a"); !ok {
			t.Error("the pod is not sent any more")
		} else if p, err := wire.DecodePod(sent.Key, sent.Body); err != nil || !p.Seen {
			t.Errorf("the agent is not told that the pod was there: %+v, %v", p, err)
		}
	}, podNamed("a"))
}

func TestReportOfAnotherUIDIsIgnored(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.connect(spoke)
		r.requests()
		stranger := podNamed("a")
		stranger.UID = "of-an-earlier-one"
		r.says(spoke, stranger, wire.PodStatus{Gone: true, Lost: true})
		r.says("spoke2", podNamed("a"), wire.PodStatus{Gone: true, Lost: true})
		r.handleStatus(spoke, resource.Resource{Key: "no-key"})
		r.handleStatus(spoke, resource.Resource{Key: "default/a", UID: "uid-of-a", Body: []byte("{")})
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestDeletionIsConfirmedWhenThePodIsGone(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		cut := r.connect(spoke)
		r.requests()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("while it runs (-want +got):\n%s", diff)
		}
		cut() // that nothing is left stays true
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true, Status: succeeded()})
		if diff := cmp.Diff(map[string]int{"patch pods": 1, "delete pods": 1}, r.requests()); diff != "" {
			t.Errorf("at its end (-want +got):\n%s", diff)
		}
	}, podNamed("a", deleting(30)))
}

func TestFinalStatusIsWrittenBeforeTheDeletion(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Status: succeeded()})
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true, Lost: true})
		defer r.connect(spoke)()
		if got := r.pod("a").Status; got.Phase != corev1.PodSucceeded || findCondition(got.Conditions, wire.ConditionInCluster).Status != corev1.ConditionFalse {
			t.Errorf("status: %+v", got)
		}
	}, podNamed("a", inCluster))
}

func TestPodWithFinalizersIsConfirmedOnce(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.connect(spoke)
		r.requests()
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true})
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a", deleting(0)))
}

// notReady is what the hub's node controller does when the node is not Ready.
func (r *rig) notReady(name string) {
	pod := r.pod(name)
	c := findCondition(pod.Status.Conditions, corev1.PodReady)
	c.Status = corev1.ConditionFalse
	r.update(pod)
}

func TestNothingIsWrittenForADisconnectedCluster(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		cut := r.connect(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		cut()
		r.notReady("a")
		r.requests()
		<-time.After(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("while cut off (-want +got):\n%s", diff)
		}
		done := r.Open(spoke)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("before the agent has said all (-want +got):\n%s", diff)
		}
		r.handleSynced(spoke)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"patch pods": 1}, r.requests()); diff != "" {
			t.Errorf("once it has (-want +got):\n%s", diff)
		}
		if c := findCondition(r.pod("a").Status.Conditions, corev1.PodReady); c.Status != corev1.ConditionTrue {
			t.Errorf("the pod is not ready again: %+v", c)
		}
		done()
	}, podNamed("a"))
}

func TestWithdrawnReportIsNotWrittenAgain(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.connect(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		r.deleteStatus(spoke, "default/a")
		r.requests()
		r.notReady("a")
		if diff := cmp.Diff(map[string]int{"update pods": 1}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestPodWithoutResponseSaysNotSent(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.requests()
		<-time.After(responseTimeout / 2)
		synctest.Wait()
		if got := r.pod("a").Status.Reason; got != "" {
			t.Errorf("reason %q before there was time", got)
		}
		<-time.After(2 * responseTimeout)
		synctest.Wait()
		if got := r.pod("a").Status; got.Reason != ReasonNotSent || got.Message != notConnected {
			t.Errorf("not connected: %q %q", got.Reason, got.Message)
		}
		done := r.Open(spoke) // by an agent of an earlier version
		<-time.After(time.Minute)
		synctest.Wait()
		if got := r.pod("a").Status; got.Reason != ReasonNotSent || got.Message != notTaken {
			t.Errorf("not taken: %q %q", got.Reason, got.Message)
		}
		if diff := cmp.Diff(map[string]int{"patch pods": 2}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		done()
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		if got := r.pod("a").Status; got.Reason != "" || got.Phase != corev1.PodRunning {
			t.Errorf("answered: %q %s", got.Reason, got.Phase)
		}
	}, podNamed("a"))
}

func TestConnectedAgentIsGivenTimeToRespond(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		defer r.connect(spoke)()
		r.watch(spoke)
		r.requests()
		<-time.After(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a"))
}

func TestDeletedPodIsUnpublished(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		grace := int64(0)
		err := r.client.CoreV1().Pods("default").Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &grace})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"default/b"}, r.published(spoke, wire.KindPod)); diff != "" {
			t.Errorf("what is sent (-want +got):\n%s", diff)
		}
		if _, ok := r.Pod(spoke, "default", "a"); ok || len(r.Pods(spoke)) != 1 {
			t.Error("the endpoint still knows it")
		}
	}, podNamed("a"), podNamed("b"))
}

func TestPodOfTheSameNameIsPublishedAsNew(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		r.says(spoke, podNamed("a"), wire.PodStatus{Generation: 1, Status: running()})
		n := r.getCluster(spoke)
		n.mu.Lock()
		r.setPod(n, podNamed("a", func(p *corev1.Pod) { p.UID = "another" }))
		n.mu.Unlock()
		synctest.Wait()
		if ref, ok := r.hub.Source(spoke, wire.KindPod).Ref("default/a"); !ok || ref.UID != "another" {
			t.Errorf("sent is %+v", ref)
		}
		if h := n.pods[wire.PodKey{Namespace: "default", Name: "a"}]; h.report != nil {
			t.Error("it has the report of the one before")
		}
	}, podNamed("a"))
}

func TestStateOutlivesTheWatchButNotTheCluster(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		stop := r.watch(spoke)
		stop()
		if _, ok := r.loadPod(spoke, "default/a"); !ok {
			t.Error("an agent that asks now is sent nothing, and would delete the pod")
		}
		stop = r.watch(spoke)
		r.RemoveCluster(spoke)
		r.create(podNamed("b"))
		if got := r.published(spoke, wire.KindPod); len(got) != 0 {
			t.Errorf("published to a cluster that was forgotten: %v", got)
		}
		stop()
		if r.getCluster(spoke) != nil || r.objects.Count() != 0 {
			t.Errorf("something is kept of it")
		}
		r.watch(spoke)
		if diff := cmp.Diff([]string{"default/a", "default/b"}, r.published(spoke, wire.KindPod)); diff != "" {
			t.Errorf("after it came back (-want +got):\n%s", diff)
		}
	}, podNamed("a", withObjects))
}

func TestStreamWithoutPodsLeavesNoState(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		done := r.Open(spoke)
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true})
		done()
		r.RemoveCluster("spoke2")
		if r.getCluster(spoke) != nil || r.getCluster("spoke2") != nil {
			t.Error("a node is kept")
		}
	})
}

func TestManyPodsArePublishedTogether(t *testing.T) {
	var pods []runtime.Object
	for i := range 600 {
		pods = append(pods, podNamed(fmt.Sprintf("p%03d", i), func(p *corev1.Pod) { p.UID = types.UID(p.Name) }))
	}
	inBubble(t, Config{}, func(r *rig) {
		began := time.Now()
		r.watch(spoke)
		defer r.connect(spoke)()
		for _, obj := range pods {
			if pod, ok := obj.(*corev1.Pod); ok {
				r.handleStatus(spoke, resource.Resource{
					Key: keyOf(pod).String(), UID: string(pod.UID), Body: encoded(t, wire.PodStatus{Generation: 1, Status: running()}),
				})
			}
		}
		synctest.Wait()
		if n, writes := len(r.published(spoke, wire.KindPod)), r.requests()["patch pods"]; n != 600 || writes != 600 || time.Since(began) != 0 {
			t.Errorf("%d pods and %d statuses after %s of waiting", n, writes, time.Since(began))
		}
	}, pods...)
}
