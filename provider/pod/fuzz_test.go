// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/spokelet/spokelet/api/wire"
)

// FuzzReport has an agent say anything of a pod, of whichever state: what is the
// hub's stays, and saying it again changes nothing.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"generation":1,"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`), uint8(0))
	f.Add([]byte(`{"gone":true,"lost":true}`), uint8(1))
	f.Add([]byte(`{"gone":true,"lost":true}`), uint8(2))
	f.Add([]byte(`{"gone":true,"status":{"phase":"Succeeded","qosClass":"Guaranteed","nominatedNodeName":"n"}}`), uint8(2))
	f.Add([]byte(`{"reason":"NameTaken","message":"somebody else's","retried":true}`), uint8(3))
	f.Add([]byte(`{"status":{"conditions":[{"type":"a/b"},{"type":"Odd"},{"type":"Odd"},{"type":"DisruptionTarget"},{"type":"PodScheduled"}]}}`), uint8(4))
	f.Fuzz(func(t *testing.T, body []byte, state uint8) {
		said, err := wire.DecodePodStatus(body)
		if err != nil {
			return
		}
		pod := fuzzedPod(state)
		got := merge(pod, said, merged)
		if got.QOSClass != pod.Status.QOSClass || got.NominatedNodeName != "" || got.ObservedGeneration < pod.Status.ObservedGeneration {
			t.Errorf("the hub's own was changed: %+v", got)
		}
		bound := findCondition(pod.Status.Conditions, corev1.PodScheduled).DeepCopy()
		scheduled := findCondition(got.Conditions, corev1.PodScheduled)
		if scheduled.ObservedGeneration == got.ObservedGeneration {
			bound.ObservedGeneration = got.ObservedGeneration
		}
		if !equality.Semantic.DeepEqual(scheduled, bound) {
			t.Errorf("the binding was changed: %+v", scheduled)
		}
		if hasEnded(pod.Status.Phase) && got.Phase != pod.Status.Phase {
			t.Errorf("from %s to %s", pod.Status.Phase, got.Phase)
		}
		if _, err := buildStatusPatch(pod, got); err != nil {
			t.Errorf("no patch: %v", err)
		}
		again := pod.DeepCopy()
		again.Status = got
		if twice := merge(again, said, later); !equality.Semantic.DeepEqual(got, twice) {
			t.Errorf("once %+v\ntwice %+v", got, twice)
		}
	})
}

// fuzzedPod has a bit for each of what a pod of the hub may be.
func fuzzedPod(state uint8) *corev1.Pod {
	pod := podNamed("a")
	for i, f := range []func(*corev1.Pod){
		inCluster,
		deleting(30),
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "Odd"}} },
		func(p *corev1.Pod) { p.Status.ObservedGeneration = 5 },
	} {
		if state&(1<<i) != 0 {
			f(pod)
		}
	}
	return pod
}

func FuzzEventKey(f *testing.F) {
	for _, key := range []string{"default/a/e1", "default/a/", "a", "//", "default/a/b/c"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		e, ok := parseEventKey(spoke, key)
		if ok && e.key.String()+"/"+e.uid != key {
			t.Errorf("%q is read as %+v", key, e)
		}
	})
}
