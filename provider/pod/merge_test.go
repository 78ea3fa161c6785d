// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

var (
	early2000 = metav1.Unix(946684800, 0)
	later     = metav1.NewTime(early2000.Add(time.Hour))
	merged    = metav1.NewTime(early2000.Add(2 * time.Hour))
)

// brief is what a table says of a status.
type brief struct {
	Phase                    corev1.PodPhase
	Reason                   string
	Message                  string
	Ready, Containers        string
	Scheduled, InCluster     string
	Other                    map[corev1.PodConditionType]string
	Container                string
	QOS                      corev1.PodQOSClass
	Generation               int64
	PodIP, NominatedNodeName string
}

func briefly(s corev1.PodStatus) brief {
	b := brief{
		Phase: s.Phase, Reason: s.Reason, Message: s.Message, QOS: s.QOSClass, Generation: s.ObservedGeneration,
		PodIP: s.PodIP, NominatedNodeName: s.NominatedNodeName,
	}
	for _, c := range s.Conditions {
		text := string(c.Status)
		if c.Reason != "" {
			text += " " + c.Reason
		}
		switch c.Type {
		case corev1.PodReady:
			b.Ready = text
		case corev1.ContainersReady:
			b.Containers = text
		case corev1.PodScheduled:
			b.Scheduled = text + " " + c.LastTransitionTime.UTC().Format("15:04")
		case wire.ConditionInCluster:
			b.InCluster = text
		case corev1.PodInitialized, corev1.PodReadyToStartContainers:
		default:
			if b.Other == nil {
				b.Other = map[corev1.PodConditionType]string{}
			}
			b.Other[c.Type] = text
		}
	}
	for _, c := range s.ContainerStatuses {
		switch {
		case c.State.Running != nil:
			b.Container = "running"
		case c.State.Terminated != nil:
			b.Container = "terminated " + c.State.Terminated.Reason
		default:
			b.Container = "waiting"
		}
	}
	return b
}

// mergeCase is a report about a pod, and what becomes of it.
type mergeCase struct {
	reason string
	pod    *corev1.Pod
	said   wire.PodStatus
	want   brief
}

// up is a pod that runs.
func up(change ...func(*brief)) brief {
	b := brief{
		Phase: corev1.PodRunning, Ready: "True", Containers: "True", Scheduled: "True 00:00", InCluster: "True Created",
		Container: "running", QOS: corev1.PodQOSBestEffort, Generation: 1, PodIP: "10.1.0.7",
	}
	for _, f := range change {
		f(&b)
	}
	return b
}

// runs is the report of a pod that runs.
func runs(change ...func(*corev1.PodStatus)) wire.PodStatus {
	s := running()
	for _, f := range change {
		f(s)
	}
	return wire.PodStatus{Generation: 1, Status: s}
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: later}
}

func having(conditions ...corev1.PodCondition) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) { s.Conditions = append(s.Conditions, conditions...) }
}

func checkMerges(t *testing.T, cases map[string]mergeCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			got := merge(tc.pod, tc.said, merged)
			if diff := cmp.Diff(tc.want, briefly(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod itself was changed (-before +after):\n%s", diff)
			}
			again := tc.pod.DeepCopy()
			again.Status = got
			if twice := merge(again, tc.said, metav1.Now()); !equality.Semantic.DeepEqual(got, twice) {
				t.Errorf("the same report again makes a difference (-once +twice):\n%s", cmp.Diff(got, twice, cmpopts.EquateEmpty()))
			}
		})
	}
}

func TestMergeReport(t *testing.T) {
	checkMerges(t, map[string]mergeCase{
		"a pod that runs": {
			reason: "the status is the spoke's; the binding, the class and the generation are the hub's",
			pod:    podNamed("a"), said: runs(), want: up(),
		},
		"a pod that came without a scheduler": {
			reason: "a kubelet says that it was scheduled, and controllers wait for it",
			pod:    podNamed("a", func(p *corev1.Pod) { p.Status.Conditions = nil }),
			said:   runs(), want: up(func(b *brief) { b.Scheduled = "True 02:00" }),
		},
		"a report that was overtaken": {
			reason: "the observed generation never goes back",
			pod:    podNamed("a", func(p *corev1.Pod) { p.Status.ObservedGeneration = 3 }),
			said:   runs(), want: up(func(b *brief) { b.Generation = 3 }),
		},
		"a nominated node": {
			reason: "the spoke's scheduler says nothing of the hub's nodes, and the hub's something",
			pod:    podNamed("a", func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }),
			said: runs(func(s *corev1.PodStatus) {
				s.NominatedNodeName = "theirs"
			}),
			want: up(func(b *brief) { b.NominatedNodeName = "n" }),
		},
		"a pod that waits for room in the spoke": {
			reason: "the hub's scheduler is content, and the user wants to know who is not",
			pod:    podNamed("a"),
			said: wire.PodStatus{Generation: 1, Status: &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"},
			}}},
			want: brief{
				Phase: corev1.PodPending, Reason: "Unschedulable", Message: "0/3 nodes are available", Scheduled: "True 00:00",
				InCluster: "True Created", QOS: corev1.PodQOSBestEffort, Generation: 1,
			},
		},
		"a refusal": {
			reason: "the pod stays Pending and says why",
			pod:    podNamed("a"), said: wire.PodStatus{Generation: 1, Reason: "NameTaken", Message: "a pod of that name is somebody else's"},
			want: brief{
				Phase: corev1.PodPending, Reason: "NameTaken", Message: "a pod of that name is somebody else's", Ready: "False NameTaken",
				Containers: "False NameTaken", Scheduled: "True 00:00", QOS: corev1.PodQOSBestEffort, Generation: 1,
			},
		},
		"a status after a refusal": {
			reason: "the refusal is over",
			pod: podNamed("a", func(p *corev1.Pod) {
				p.Status = merge(p, wire.PodStatus{Reason: "NameTaken", Message: "x"}, early2000)
			}),
			said: runs(), want: up(),
		},
		"a refusal of a pod that runs": {
			reason: "a phase does not go back",
			pod:    podNamed("a", inCluster), said: wire.PodStatus{Generation: 1, Reason: "Forbidden", Message: "x"},
			want: up(func(b *brief) {
				b.Reason, b.Message, b.Ready, b.Containers = "Forbidden", "x", "False Forbidden", "False Forbidden"
			}),
		},
	})
}

func TestMergeConditions(t *testing.T) {
	gated := func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "shop/open"}} }
	checkMerges(t, map[string]mergeCase{
		"conditions of the hub": {
			reason: "a gate and a disruption that the hub has begun are nobody else's",
			pod: podNamed("a", func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions,
					condition("shop/open", corev1.ConditionTrue, ""), condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByTaintManager"))
			}),
			said: runs(having(condition("shop/open", corev1.ConditionFalse, ""), condition(corev1.DisruptionTarget, corev1.ConditionFalse, ""))),
			want: up(func(b *brief) {
				b.Other = map[corev1.PodConditionType]string{"shop/open": "True", corev1.DisruptionTarget: "True DeletionByTaintManager"}
			}),
		},
		"a disruption in the spoke": {
			reason: "it is why the pod ends",
			pod:    podNamed("a"),
			said:   runs(having(condition(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI"))),
			want: up(func(b *brief) {
				b.Other = map[corev1.PodConditionType]string{corev1.DisruptionTarget: "True EvictionByEvictionAPI"}
			}),
		},
		"a resize that is over": {
			reason: "a kubelet takes its conditions away",
			pod: podNamed("a", func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, condition(corev1.PodResizeInProgress, corev1.ConditionTrue, ""))
			}),
			said: runs(), want: up(),
		},
		"a resize that waits": {
			reason: "it is mirrored",
			pod:    podNamed("a"),
			said:   runs(having(condition(corev1.PodResizePending, corev1.ConditionTrue, "Deferred"))),
			want: up(func(b *brief) {
				b.Other = map[corev1.PodConditionType]string{corev1.PodResizePending: "True Deferred"}
			}),
		},
		"a gate that is shut": {
			reason: "a kubelet has it decide, and its condition is on the hub",
			pod:    podNamed("a", gated), said: runs(),
			want: up(func(b *brief) { b.Ready = "False ReadinessGatesNotReady" }),
		},
		"a gate that is open on the hub and unknown in the spoke": {
			reason: "the spoke's kubelet has never heard of it",
			pod: podNamed("a", gated, func(p *corev1.Pod) {
				p.Status.Conditions = append(p.Status.Conditions, condition("shop/open", corev1.ConditionTrue, ""))
			}),
			said: runs(func(s *corev1.PodStatus) {
				findCondition(s.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
				findCondition(s.Conditions, corev1.PodReady).Reason = "ReadinessGatesNotReady"
			}),
			want: up(func(b *brief) { b.Other = map[corev1.PodConditionType]string{"shop/open": "True"} }),
		},
	})
}

func TestMergeGoneReport(t *testing.T) {
	checkMerges(t, map[string]mergeCase{
		"a pod that has failed on the hub": {
			reason: "it does not come back to life",
			pod: podNamed("a", inCluster, func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			}),
			said: runs(),
			want: up(func(b *brief) { b.Phase, b.Reason = corev1.PodFailed, "Evicted" }),
		},
		"a pod that has failed on the hub and ended in the spoke": {
			reason: "its containers have ended, the verdict stands",
			pod: podNamed("a", inCluster, func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			}),
			said: wire.PodStatus{Generation: 1, Status: succeeded()},
			want: up(func(b *brief) {
				b.Phase, b.Reason, b.Container = corev1.PodFailed, "Evicted", "terminated Completed"
			}),
		},
		"a pod that was deleted in the spoke": {
			reason: "it has ended, and nobody knows how",
			pod:    podNamed("a", inCluster), said: wire.PodStatus{Gone: true, Lost: true, Generation: 1},
			want: up(func(b *brief) {
				b.Phase, b.Reason, b.Message = corev1.PodFailed, ReasonPodDeletedInCluster, podDeleted
				b.Ready, b.Containers, b.InCluster = "False PodFailed", "False PodFailed", "False Gone"
				b.Container = "terminated ContainerStatusUnknown"
			}),
		},
		"a pod that was deleted in the spoke, whose kubelet was first to say so": {
			reason: "how it ended does not say why",
			pod:    podNamed("a", inCluster, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			said:   wire.PodStatus{Gone: true, Lost: true, Generation: 1},
			want: up(func(b *brief) {
				b.Phase, b.Reason, b.Message, b.InCluster = corev1.PodFailed, ReasonPodDeletedInCluster, podDeleted, "False Gone"
			}),
		},
		"a pod whose last status came with its end": {
			reason: "how it ended is known",
			pod:    podNamed("a", inCluster, deleting(30)), said: wire.PodStatus{Gone: true, Generation: 1, Status: succeeded()},
			want: up(func(b *brief) {
				b.Phase, b.InCluster, b.Container = corev1.PodSucceeded, "False Gone", "terminated Completed"
			}),
		},
		"a pod that is deleted and of which the spoke forgot the end": {
			reason: "controllers count pods by how they ended",
			pod:    podNamed("a", inCluster, deleting(30)), said: wire.PodStatus{Gone: true},
			want: up(func(b *brief) {
				b.Phase, b.Ready, b.Containers, b.InCluster = corev1.PodFailed, "False PodFailed", "False PodFailed", "False Gone"
				b.Container = "terminated ContainerStatusUnknown"
			}),
		},
		"a pod that is deleted on the hub and in the spoke": {
			reason: "it was to end anyway",
			pod:    podNamed("a", inCluster, deleting(30)), said: wire.PodStatus{Gone: true, Lost: true},
			want: up(func(b *brief) {
				b.Phase, b.Ready, b.Containers, b.InCluster = corev1.PodFailed, "False PodFailed", "False PodFailed", "False Gone"
				b.Container = "terminated ContainerStatusUnknown"
			}),
		},
	})
}

func TestMergeGoneReportOfPodNeverCreated(t *testing.T) {
	refused := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = merge(p, wire.PodStatus{Generation: 1, Reason: reason, Message: message}, early2000)
		}
	}
	failed := func(change ...func(*brief)) brief {
		b := brief{
			Phase: corev1.PodFailed, Ready: "False PodFailed", Containers: "False PodFailed", Scheduled: "True 00:00",
			QOS: corev1.PodQOSBestEffort, Generation: 1,
		}
		for _, f := range change {
			f(&b)
		}
		return b
	}
	because := func(reason, message string) func(*brief) {
		return func(b *brief) { b.Reason, b.Message = reason, message }
	}
	checkMerges(t, map[string]mergeCase{
		"nobody has said anything of it": {
			reason: "a kubelet fails a pod that it never began, and a Job waits for that",
			pod:    podNamed("a", deleting(30)), said: wire.PodStatus{Gone: true, Generation: 1}, want: failed(),
		},
		"it was refused": {
			reason: "the refusal is why it failed",
			pod:    podNamed("a", refused("HostAccess", "host namespaces"), deleting(30)),
			said:   wire.PodStatus{Gone: true, Generation: 1}, want: failed(because("HostAccess", "host namespaces")),
		},
		"its refusal comes with its end": {
			reason: "of two reports at once the last one is read",
			pod:    podNamed("a", deleting(30)),
			said:   wire.PodStatus{Gone: true, Generation: 1, Reason: "HostAccess", Message: "host namespaces"},
			want:   failed(because("HostAccess", "host namespaces")),
		},
		"it was sent late": {
			reason: "that it was not sent is over",
			pod:    podNamed("a", refused(ReasonNotSent, notConnected), deleting(30)),
			said:   wire.PodStatus{Gone: true, Generation: 1}, want: failed(),
		},
		"it was deleted by force": {
			reason: "a finalizer that waits for its end still holds it",
			pod:    podNamed("a", deleting(0)), said: wire.PodStatus{Gone: true, Generation: 1}, want: failed(),
		},
		"somebody on the hub has ended it": {
			reason: "a pod ends once",
			pod: podNamed("a", deleting(30), func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
			}),
			said: wire.PodStatus{Gone: true, Generation: 1, Reason: "HostAccess", Message: "host namespaces"},
			want: brief{Phase: corev1.PodFailed, Reason: "Evicted", Scheduled: "True 00:00", QOS: corev1.PodQOSBestEffort},
		},
		"it is not deleted": {
			reason: "it may yet be made",
			pod:    podNamed("a"), said: wire.PodStatus{Gone: true, Generation: 1},
			want: brief{Phase: corev1.PodPending, Scheduled: "True 00:00", QOS: corev1.PodQOSBestEffort},
		},
	})
}

func TestMergeSetsObservedGenerationOfPodScheduled(t *testing.T) {
	scheduled := func(generation int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			findCondition(p.Status.Conditions, corev1.PodScheduled).ObservedGeneration = generation
		}
	}
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		said   int64
		want   int64
	}{
		"by a scheduler":         {reason: "it was told of the first generation", pod: podNamed("a", scheduled(1)), said: 1, want: 1},
		"by an older scheduler":  {reason: "a kubelet sets what is not there", pod: podNamed("a"), said: 1, want: 1},
		"by nobody":              {reason: "the pod came with its node", pod: podNamed("a", func(p *corev1.Pod) { p.Status.Conditions = nil }), said: 1, want: 1},
		"after a resize":         {reason: "a kubelet raises it", pod: podNamed("a", scheduled(1)), said: 2, want: 2},
		"overtaken by a report":  {reason: "it never goes back", pod: podNamed("a", scheduled(3)), said: 2, want: 3},
		"of a pod not yet as it": {reason: "the spoke's pod is of no generation yet", pod: podNamed("a"), said: 0, want: 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := merge(tc.pod, wire.PodStatus{Generation: tc.said, Status: running()}, later)
			if c := findCondition(got.Conditions, corev1.PodScheduled); c.ObservedGeneration != tc.want || c.Status != corev1.ConditionTrue {
				t.Errorf("%s: %+v, want generation %d", tc.reason, c, tc.want)
			}
		})
	}
}

func TestMergeKeepsTransitionTime(t *testing.T) {
	pod := podNamed("a")
	pod.Status = merge(pod, wire.PodStatus{Reason: "NameTaken", Message: "x"}, early2000)
	got := merge(pod, wire.PodStatus{Reason: "Forbidden", Message: "y"}, later)
	if c := findCondition(got.Conditions, corev1.PodReady); c.Reason != "Forbidden" || !c.LastTransitionTime.Equal(&early2000) {
		t.Errorf("Ready is %+v, want another reason since the same time", c)
	}
}

// The chart's policy spokelet-hub-pods keeps the hub from a pod that somebody has begun
// and that does not bear the hub's condition.
func TestMergeSetsInClusterWithStartTimeOrHostIP(t *testing.T) {
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		said   wire.PodStatus
	}{
		"it runs":                   {reason: "the first word of it", pod: podNamed("a"), said: wire.PodStatus{Status: running()}},
		"it has ended":              {reason: "it was quick", pod: podNamed("a"), said: wire.PodStatus{Status: succeeded()}},
		"it ran and is let go of":   {reason: "its deletion is still to be confirmed", pod: podNamed("a", deleting(30)), said: wire.PodStatus{Status: succeeded(), Gone: true}},
		"it was deleted over there": {reason: "its deletion is still to come", pod: podNamed("a"), said: wire.PodStatus{Status: running(), Gone: true, Lost: true}},
		"it ran and is refused":     {reason: "it runs on", pod: podNamed("a", inCluster), said: wire.PodStatus{Reason: "CreateFailed"}},
		"it never ran":              {reason: "nothing has begun", pod: podNamed("a"), said: wire.PodStatus{Reason: "CreateFailed"}},
		"it never ran and is gone":  {reason: "it has failed, and never began", pod: podNamed("a", deleting(30)), said: wire.PodStatus{Gone: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := merge(tc.pod, tc.said, later)
			begun := status.StartTime != nil || status.HostIP != ""
			if begun && statusCondition(&status, wire.ConditionInCluster) == nil {
				t.Errorf("%s: the hub could not write it any more: %+v", tc.reason, status)
			}
		})
	}
}
