// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// A pod comes from whoever may create some on the hub.
func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","uid":"u"},"spec":{"containers":[{"name":"a","image":"i"}]}}`), false)
	f.Add([]byte(`{"metadata":{"name":"a","uid":"u"},"spec":{"volumes":[`+hubToken+`],"containers":[{"name":"a","image":"i","volumeMounts":[`+hubMount+`]}]}}`), true)
	for _, spec := range disguised() {
		f.Add([]byte(`{"metadata":{"name":"a","uid":"u"},"spec":`+spec+`}`), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, tokens bool) {
		hub := &corev1.Pod{}
		if json.Unmarshal(body, hub) != nil {
			return // JSON of something else
		}
		o := Options{HubID: "h", Namespace: "n", Tokens: TokensNone}
		if tokens {
			o.Tokens = TokensSpoke
		}
		shapes(t, hub, o)
		shapes(t, hub, Options{HubID: "h", Namespace: "n", Tokens: TokensHub, Issued: tokens, APIHost: "h", APIPort: "1"})
	})
}

func shapes(t *testing.T, hub *corev1.Pod, o Options) {
	t.Helper()
	before := hub.DeepCopy()
	want, err := NewDesiredPod(hub, o)
	if diff := cmp.Diff(before, hub); diff != "" {
		t.Errorf("Want() changed the hub's pod:\n%s", diff)
	}
	refused, ok := errors.AsType[*RefusedError](err)
	if err != nil && (!ok || !wire.IsReason(refused.Reason) || refused.Message != wire.Line(refused.Message)) {
		t.Errorf("Want(): %v is no refusal that travels", err)
	}
	if want == nil {
		return
	}
	stays(t, want, o.Tokens == TokensSpoke)
	reads(t, hub, want, o)
	if c := ComputeChanges(want, again(t, want)); !c.Empty() {
		t.Errorf("Change() of the same: %s %s %s", c.Update, c.Resize, c.Ephemeral)
	}
}

// stays tells what no pod may have, whatever it looked like on the hub.
func stays(t *testing.T, pod *corev1.Pod, tokens bool) {
	t.Helper()
	s := &pod.Spec
	if s.HostNetwork || s.HostPID || s.HostIPC || s.NodeName != "" || len(s.Tolerations) > 0 || s.PriorityClassName != "" || len(s.ResourceClaims) > 0 {
		t.Errorf("spec reaches its node: %+v", s)
	}
	if pod.Namespace != "n" || pod.Labels[LabelHub] != "h" || len(pod.OwnerReferences)+len(pod.Finalizers) > 0 {
		t.Errorf("metadata: %+v", pod.ObjectMeta)
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.HostPath != nil || v.CSI != nil {
			t.Errorf("volume %+v", v)
		}
		if v.Projected == nil || tokens {
			continue
		}
		for _, p := range v.Projected.Sources {
			if p.ServiceAccountToken != nil {
				t.Errorf("volume %s has a token", v.Name)
			}
		}
	}
}

// reads tells that a pod reads nothing that the hub's is not seen to refer to.
func reads(t *testing.T, hub, made *corev1.Pod, o Options) {
	t.Helper()
	known := map[string]bool{}
	for _, ref := range podrefs.Of(hub) {
		known[refName(ref.Kind, ref.Name)] = true
	}
	if o.usesHubTokens(&hub.Spec) {
		known[refName(wire.PodObjectSecret, TokenSecret(hub.UID))] = true
		known[refName(wire.PodObjectConfigMap, HubRootCA)] = true
	}
	for _, ref := range podrefs.BeforeAdmission(made) {
		if !known[refName(ref.Kind, ref.Name)] {
			t.Errorf("the pod reads %s %s", ref.Kind, ref.Name)
		}
	}
}

// again is a pod as it is after a way through JSON.
func again(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	body, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(body, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a live pod bears was written by whoever may write pods in the spoke.
func FuzzChange(f *testing.F) {
	f.Add(`{"label:app":"00","image:main":"00"}`, []byte(`{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"main"}]}}`))
	f.Fuzz(func(t *testing.T, written string, body []byte) {
		live := &corev1.Pod{}
		if json.Unmarshal(body, live) != nil {
			return // JSON of something else
		}
		if live.Annotations == nil {
			live.Annotations = map[string]string{}
		}
		live.Annotations[AnnotationWritten] = written
		want := mustPod(t, hubPod(t, running), options())
		c := ComputeChanges(want, live)
		for _, patch := range [][]byte{c.Update, c.Resize, c.Ephemeral} {
			if patch != nil && !json.Valid(patch) {
				t.Errorf("Change(): %s is no JSON", patch)
			}
		}
	})
}
