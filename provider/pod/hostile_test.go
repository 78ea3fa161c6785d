// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
)

func TestOversizedReportIsDropped(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		defer r.connect(spoke)()
		said := wire.PodStatus{Generation: 1, Status: running()}
		said.Status.Message = strings.Repeat("x", wire.PodStatusMaxBytes)
		r.says(spoke, podNamed("a"), said)
		if got := r.pod("a").Status.Phase; got != corev1.PodPending {
			t.Errorf("phase %s of a status of %d bytes", got, wire.PodStatusMaxBytes)
		}
		r.getCluster(spoke).mu.Lock()
		defer r.getCluster(spoke).mu.Unlock()
		if r.getCluster(spoke).pods[wire.PodKey{Namespace: "default", Name: "a"}].report != nil {
			t.Error("it is kept")
		}
	}, podNamed("a"))
}

func TestSpokeConditionsAreBounded(t *testing.T) {
	pod := podNamed("a", inCluster)
	for round := range 10 {
		said := wire.PodStatus{Generation: 1, Status: running()}
		for i := range maxConditions {
			said.Status.Conditions = append(said.Status.Conditions, corev1.PodCondition{
				Type: corev1.PodConditionType(fmt.Sprintf("Theirs%dOf%d", i, round)), Status: corev1.ConditionTrue,
			})
		}
		pod.Status = merge(pod, said, metav1.Unix(1, 0))
	}
	if n := len(pod.Status.Conditions); n > maxConditions+len(running().Conditions)+2 {
		t.Errorf("a pod has %d conditions", n)
	}
	if ready := findCondition(pod.Status.Conditions, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionTrue {
		t.Errorf("Ready is %v: a kubelet's conditions always have room", ready)
	}
}

func TestDeletionIsConfirmedWhenTheLastStatusIsRejected(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil)
		})
		r.watch(spoke)
		defer r.connect(spoke)()
		r.requests()
		r.says(spoke, podNamed("a"), wire.PodStatus{Gone: true, Status: succeeded()})
		if diff := cmp.Diff(map[string]int{"patch pods": 1, "delete pods": 1}, r.requests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}, podNamed("a", deleting(30)))
}

func TestPodOfAgentWithoutPodSupportCanBeDeleted(t *testing.T) {
	inBubble(t, Config{}, func(r *rig) {
		r.watch(spoke)
		r.requests()
		<-time.After(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{}, r.requests()); diff != "" {
			t.Errorf("while the cluster is away, and may have it (-want +got):\n%s", diff)
		}
		defer r.Open(spoke)() // by an agent that takes no pods
		<-time.After(2 * responseTimeout)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"patch pods": 1, "delete pods": 1}, r.requests()); diff != "" {
			t.Errorf("once it is here (-want +got):\n%s", diff)
		}
	}, podNamed("a", deleting(30)))
}

func TestFailingPodDoesNotDelayOthers(t *testing.T) {
	limiter := newRateLimiter[podRef]()
	for i := range 10_000 {
		limiter.When(podRef{cluster: strconv.Itoa(i)})
	}
	if wait := limiter.When(podRef{cluster: "another"}); wait > minRetry {
		t.Errorf("the first attempt at another waits %s", wait)
	}
	for range 100 {
		limiter.When(podRef{cluster: "hot"})
	}
	if wait := limiter.When(podRef{cluster: "hot"}); wait > maxRetry {
		t.Errorf("attempts are %s apart", wait)
	}
}
