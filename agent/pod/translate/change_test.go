// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

const running = `{"activeDeadlineSeconds":600,
	"initContainers":[{"name":"init","image":"init:1"}],
	"containers":[{"name":"main","image":"web:1","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}},{"name":"side","image":"side:1"}]}`

// apply does what an API server does with a patch of a pod.
func apply(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	if patch == nil {
		return pod
	}
	before, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func applyAll(t *testing.T, pod *corev1.Pod, c Changes) *corev1.Pod {
	t.Helper()
	return apply(t, apply(t, apply(t, pod, c.Ephemeral), c.Resize), c.Update)
}

// admitted is the pod that a spoke has after the creation: its API server gave it
// an identity and filled in, and its owner's webhooks did as they like.
func admitted(t *testing.T, hub *corev1.Pod) *corev1.Pod {
	t.Helper()
	live := mustPod(t, hub, options()).DeepCopy()
	live.UID, live.ResourceVersion = "spoke-uid", "41"
	live.Labels["injected"], live.Annotations["injected"] = "yes", "yes"
	live.Spec.NodeName, live.Spec.SchedulerName = "node-1", "default-scheduler"
	live.Spec.Containers = append(live.Spec.Containers, corev1.Container{Name: "mesh", Image: "mesh:1"})
	main := &live.Spec.Containers[0]
	main.Image = "mirror.example/web:1"
	main.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	main.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("250m")
	return live
}

func TestComputeChangesOfNewPodIsEmpty(t *testing.T) {
	hub := hubPod(t, running)
	if c := ComputeChanges(mustPod(t, hub, options()), admitted(t, hub)); !c.Empty() {
		t.Errorf("Change(): got update %s, resize %s, ephemeral %s", c.Update, c.Resize, c.Ephemeral)
	}
}

type changeCase struct {
	reason string
	change func(hub *corev1.Pod)
	// spoke changes the live pod.
	spoke                     func(live *corev1.Pod)
	update, resize, ephemeral string
}

func cpu(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

func ephemeral(name string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}}
}

// of the hub's changes, and of what is written for them.
func updates() map[string]changeCase {
	return map[string]changeCase{
		"a label and an annotation": {
			reason: "new ones come, others go, those of the spoke stay",
			change: func(hub *corev1.Pod) {
				hub.Labels = map[string]string{"tier": "front"}
				hub.Annotations["note"] = "b"
			},
			update: `{"metadata":{"uid":"spoke-uid","labels":{"app":null,"tier":"front"},"annotations":{"note":"b"}}}`,
		},
		"a label that the spoke has already removed": {
			reason: "there is nothing to remove, but what was asked for is kept in mind",
			change: func(hub *corev1.Pod) { delete(hub.Labels, "app") },
			spoke:  func(live *corev1.Pod) { delete(live.Labels, "app") },
			update: `{"metadata":{"uid":"spoke-uid","annotations":{}}}`,
		},
		"a label that was changed in the spoke": {
			reason: "nothing new is asked for, and two who write the same never end",
			spoke:  func(live *corev1.Pod) { live.Labels["app"] = "isolated" },
		},
		"an image": {
			reason: "that of the other containers, a mirror's, stays",
			change: func(hub *corev1.Pod) {
				hub.Spec.Containers[1].Image = "side:2"
				hub.Spec.InitContainers[0].Image = "init:2"
			},
			update: `{"metadata":{"uid":"spoke-uid","annotations":{}},
				"spec":{"containers":[{"name":"side","image":"side:2"}],"initContainers":[{"name":"init","image":"init:2"}]}}`,
		},
		"a deadline": {
			reason: "it can be brought forward",
			change: func(hub *corev1.Pod) { hub.Spec.ActiveDeadlineSeconds = new(int64(60)) },
			update: `{"metadata":{"uid":"spoke-uid","annotations":{}},"spec":{"activeDeadlineSeconds":60}}`,
		},
	}
}

func TestComputeChangesUpdate(t *testing.T) { testChanges(t, updates()) }

// of the subresources, and of the spoke's own changes.
func others() map[string]changeCase {
	return map[string]changeCase{
		"a resize": {
			reason: "what the spoke's admission made of the other resources stays; the note of it waits until it is there",
			change: func(hub *corev1.Pod) {
				hub.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
				hub.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.25")
			},
			resize: `{"metadata":{"resourceVersion":"41"},"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"2"}}}]}}`,
		},
		"a resize of the whole pod": {
			reason: "it has resources of its own",
			change: func(hub *corev1.Pod) {
				hub.Spec.Resources = &corev1.ResourceRequirements{Limits: cpu("3")}
			},
			resize: `{"metadata":{"resourceVersion":"41"},"spec":{"resources":{"limits":{"cpu":"3"}}}}`,
		},
		"a resize in the spoke": {
			reason: "nothing new is asked for",
			spoke: func(live *corev1.Pod) {
				live.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("3")
			},
		},
		"ephemeral containers": {
			reason: "those of the spoke stay, and one that is there is not added again",
			change: func(hub *corev1.Pod) {
				hub.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("first"), ephemeral("second")}
				hub.Spec.EphemeralContainers[1].TargetContainerName = "main"
			},
			spoke: func(live *corev1.Pod) {
				live.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("own"), ephemeral("first")}
			},
			ephemeral: `{"metadata":{"resourceVersion":"41"},"spec":{"ephemeralContainers":[{"name":"second","image":"i","resources":{},"targetContainerName":"main"}]}}`,
		},
		"a container that the spoke's webhook removed": {
			reason: "an API server refuses a patch that adds one",
			change: func(hub *corev1.Pod) {
				hub.Spec.Containers[1].Image = "side:2"
				hub.Spec.Containers[1].Resources.Limits = cpu("2")
			},
			spoke: func(live *corev1.Pod) {
				live.Spec.Containers = live.Spec.Containers[:1]
			},
			update: `{"metadata":{"uid":"spoke-uid","annotations":{}}}`,
		},
		"what was asked for is not to be read any more": {
			reason: "then all is asked for again, and nothing removed that may be another's",
			change: func(hub *corev1.Pod) { delete(hub.Annotations, "note") },
			spoke:  func(live *corev1.Pod) { live.Annotations[AnnotationWritten] = "{" },
			update: `{"metadata":{"uid":"spoke-uid","annotations":{}},"spec":{"containers":[{"name":"main","image":"web:1"}]}}`,
			resize: `{"metadata":{"resourceVersion":"41"},"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"100m"}}}]}}`,
		},
	}
}

func TestComputeChangesOfSubresources(t *testing.T) { testChanges(t, others()) }

func testChanges(t *testing.T, cases map[string]changeCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := hubPod(t, running)
			live := admitted(t, hub)
			if tc.spoke != nil {
				tc.spoke(live)
			}
			if tc.change != nil {
				tc.change(hub)
			}
			want, err := NewDesiredPod(hub, options())
			if err != nil {
				t.Fatalf("Want(): %v", err)
			}
			c := ComputeChanges(want, live)
			equalPatch(t, tc.reason, "Update", tc.update, withoutMarks(t, c.Update))
			equalPatch(t, tc.reason, "Resize", tc.resize, c.Resize)
			equalPatch(t, tc.reason, "Ephemeral", tc.ephemeral, c.Ephemeral)
			settles(t, want, applyAll(t, live, c))
		})
	}
}

// settles: when all is written there is nothing more, but for the note that a
// resize has happened.
func settles(t *testing.T, want, live *corev1.Pod) {
	t.Helper()
	live = applyAll(t, live, ComputeChanges(want, live))
	if c := ComputeChanges(want, live); !c.Empty() {
		t.Errorf("Change() of what was written: got update %s, resize %s, ephemeral %s", c.Update, c.Resize, c.Ephemeral)
	}
	if live.Annotations[AnnotationWritten] != want.Annotations[AnnotationWritten] {
		t.Errorf("what was asked for: got %s, want %s", live.Annotations[AnnotationWritten], want.Annotations[AnnotationWritten])
	}
}

func TestFailedResizeIsRequestedAgain(t *testing.T) {
	hub := hubPod(t, running)
	live := admitted(t, hub)
	hub.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
	hub.Labels["app"] = "other"
	want := mustPod(t, hub, options())
	first := ComputeChanges(want, live)
	live = apply(t, live, first.Update)
	second := ComputeChanges(want, live)
	if first.Resize == nil || second.Resize == nil || second.Update != nil {
		t.Fatalf("Change(): got resize %s, then resize %s and update %s", first.Resize, second.Resize, second.Update)
	}
	live = apply(t, live, second.Resize)
	third := ComputeChanges(want, live)
	if third.Resize != nil || third.Update == nil {
		t.Errorf("Change() after the resize: got resize %s and update %s, want an update", third.Resize, third.Update)
	}
	settles(t, want, live)
}

// A value of a webhook's, in place of one that was asked for, is not asked for again
// when another value changes.
func TestComputeChangesKeepsSpokeChanges(t *testing.T) {
	hub := hubPod(t, running)
	live := admitted(t, hub)
	for i, tier := range []string{"a", "b", "c"} {
		hub.Labels["tier"] = tier
		live = applyAll(t, live, ComputeChanges(mustPod(t, hub, options()), live))
		if got := live.Spec.Containers[0].Image; got != "mirror.example/web:1" {
			t.Errorf("after %d changes: image %s", i+1, got)
		}
		if got := live.Labels["tier"]; got != tier {
			t.Errorf("after %d changes: label %s", i+1, got)
		}
	}
}

// withoutMarks takes the annotation out that every update has, and whose value is
// not readable; settles looks at it.
func withoutMarks(t *testing.T, patch []byte) []byte {
	t.Helper()
	if patch == nil {
		return nil
	}
	var doc jsonObject
	if err := json.Unmarshal(patch, &doc); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	annotations, _ := doc["metadata"].(jsonObject)["annotations"].(jsonObject)
	if _, ok := annotations[AnnotationWritten]; !ok {
		t.Errorf("update %s has no annotation %s", patch, AnnotationWritten)
	}
	delete(annotations, AnnotationWritten)
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func equalPatch(t *testing.T, reason, name, want string, got []byte) {
	t.Helper()
	if diff := cmp.Diff(decoded(t, []byte(want)), decoded(t, got)); diff != "" {
		t.Errorf("%s\n%s (-want +got):\n%s", reason, name, diff)
	}
}

func decoded(t *testing.T, text []byte) any {
	t.Helper()
	if len(text) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("patch %s: %v", text, err)
	}
	return v
}
