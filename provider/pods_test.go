// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func podOn(node string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestWhatAPodOfAVirtualNodeGets(t *testing.T) {
	deleted := metav1.Now()
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		want   map[string]int
	}{
		"a new pod": {
			reason: "it is told once",
			pod:    podOn("spoke1", nil), want: map[string]int{"patch pods": 1},
		},
		"a DaemonSet's pod": {
			reason: "who made it does not matter",
			pod: podOn("spoke1", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", UID: "d"}}
			}),
			want: map[string]int{"patch pods": 1},
		},
		"a pod that was told by an earlier process": {
			reason: "the reason is on the pod",
			pod:    podOn("spoke1", func(p *corev1.Pod) { p.Status.Reason = ReasonPodsNotSupported }), want: map[string]int{},
		},
		"a pod that has ended": {
			reason: "its status is history",
			pod:    podOn("spoke1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), want: map[string]int{},
		},
		"a pod that is being deleted": {
			reason: "nothing runs that could take its grace",
			pod: podOn("spoke1", func(p *corev1.Pod) {
				grace := int64(30)
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, &grace
			}),
			want: map[string]int{"delete pods": 1},
		},
		"a pod that only its finalizers hold": {
			reason: "the deletion was confirmed, and confirming it again does nothing",
			pod: podOn("spoke1", func(p *corev1.Pod) {
				grace := int64(0)
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &deleted, &grace, []string{"x/y"}
			}),
			want: map[string]int{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewClientset(tc.pod))
				defer h.stop()
				h.client.ClearActions()
				h.ensure(spoke1)
				time.Sleep(time.Minute)
				synctest.Wait()
				got := map[string]int{}
				for _, a := range h.client.Actions() {
					if a.GetResource().Resource == "pods" && (a.GetVerb() == "patch" || a.GetVerb() == "delete") {
						got[a.GetVerb()+" pods"]++
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestAPodIsToldWhyItStaysPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewClientset(podOn("spoke1", nil)))
		defer h.stop()
		h.ensure(spoke1)
		time.Sleep(time.Second)
		synctest.Wait()
		pod, err := h.client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase != corev1.PodPending || pod.Status.Reason != ReasonPodsNotSupported || pod.Status.Message == "" {
			t.Errorf("status: got %+v", pod.Status)
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodReadyToStartContainers} {
			found := false
			for _, c := range pod.Status.Conditions {
				found = found || c.Type == kind && c.Status == corev1.ConditionFalse && c.Reason == ReasonPodsNotSupported
			}
			if !found {
				t.Errorf("condition %s: not false for the reason, in %+v", kind, pod.Status.Conditions)
			}
		}
	})
}

func TestARequestForAPodIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		down := withOutage(client)
		h := startHub(t, client)
		defer h.stop()
		h.ensure(spoke1)
		time.Sleep(time.Second)
		down.begin()
		if err := client.Tracker().Add(podOn("spoke1", nil)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		down.end()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		pod, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || pod.Status.Reason != ReasonPodsNotSupported {
			t.Errorf("pod after the outage: %+v, %v", pod.Status, err)
		}
	})
}

func TestNothingIsKeptOfTheStoppedNodesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewClientset(podOn("spoke1", nil)))
		defer h.stop()
		h.ensure(spoke1)
		time.Sleep(time.Second)
		if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(h.provider.pods.pods); n != 0 {
			t.Errorf("%d pods are still known", n)
		}
	})
}
