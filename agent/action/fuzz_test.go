// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// FuzzAction: whatever a hub sends, it is brought to a result that the hub accepts, by
// one write of one object at most, and a second process finds the same.
func FuzzAction(f *testing.F) {
	for _, a := range []wire.Action{
		action(wire.VerbCreate, settingsTemplate),
		action(wire.VerbUpdate, settingsTemplate),
		action(wire.VerbCreate, `{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"s-","namespace":"app"},"stringData":{"a":"b"}}`),
		action(wire.VerbCreate, `{"apiVersion":"v2","kind":"Secret","metadata":{"name":"s","namespace":"app"}}`),
		action(wire.VerbCreate, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a%2fb"}}`),
		deletion(settingsTarget()),
		deletion(wire.Target{Resource: "cm", Namespace: "app", Name: ".."}),
	} {
		raw, err := json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newRig()
		r.server.put(settingsPath, settings(map[string]any{"theirs": "1"}))
		first := resultOf(t, r, body)
		if got := r.server.writes("/api/v1/namespaces/app"); len(got) > 1 {
			t.Errorf("writes are %v, want one at most", got)
		}
		second := resultOf(t, r, body)
		if causeIn(second) != causeIn(first) {
			t.Errorf("%+v, and then %+v", first.Refusal, second.Refusal)
		}
	})
}

// resultOf has a process execute an action by itself. What the cluster serves it reads when it is
// asked: of a kind that is not among what was read before, it would wait for the next reading.
func resultOf(t *testing.T, r *rig, body []byte) wire.ActionResult {
	t.Helper()
	r.resources = mapping.New(r.discovery)
	e, err := New(r.config(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer e.shutDown()
	v := resource.Resource{Key: actionKey, UID: actionUID, Generation: 1, Body: body}
	e.putAction(v)
	request := e.request(actionKey)
	if request.invalid != nil {
		return wire.ActionResult{Refusal: wire.Refuse(wire.CauseTarget, "", request.invalid.Error())}
	}
	result, err := e.execute(t.Context(), *request)
	if err != nil {
		t.Fatalf("it would be tried for ever: %v", err)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodeActionResult(raw); err != nil {
		t.Fatalf("the hub would not take the result: %v", err)
	}
	return result
}

// FuzzLegacy: a template becomes one of today's, of the same object, or is refused; it
// becomes no other a second time.
func FuzzLegacy(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"extensions/v1beta1","kind":"Deployment","metadata":{"name":"x","namespace":"app"},"spec":{"template":{"metadata":{"labels":{"app":"x"}}}}}`,
		`{"apiVersion":"apps/v1beta1","kind":"StatefulSet","metadata":{"name":"x"},"spec":{"selector":null}}`,
		`{"apiVersion":"extensions/v1beta1","kind":"Ingress","metadata":{"name":"x"},"spec":{"backend":{"serviceName":"d","servicePort":80},"rules":[{"http":{"paths":[{"backend":{"serviceName":"s","servicePort":"http"}}]}}]}}`,
		`{"apiVersion":"policy/v1beta1","kind":"PodDisruptionBudget","metadata":{"name":"x"},"spec":{"selector":{}}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1alpha1","kind":"RoleBinding","metadata":{"name":"x"},"subjects":[{"kind":"User","apiVersion":"a/v1","name":"u"}]}`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, template []byte, update bool) {
		verb := wire.VerbCreate
		if update {
			verb = wire.VerbUpdate
		}
		in, err := decodeTemplate(template)
		if err != nil {
			return
		}
		s, ok := replacements[in.GroupVersionKind()]
		if !ok {
			return
		}
		out := in.DeepCopy()
		out.SetGroupVersionKind(s.WithKind(in.GetKind()))
		if !s.convert(out, verb) {
			return
		}
		if diff := cmp.Diff(in.Object["metadata"], out.Object["metadata"]); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if _, ok := replacements[out.GroupVersionKind()]; ok {
			t.Errorf("%s is an old version, too", out.GroupVersionKind())
		}
		again := &unstructured.Unstructured{}
		raw, err := out.MarshalJSON()
		if err == nil {
			err = again.UnmarshalJSON(raw)
		}
		if err != nil {
			t.Errorf("it is no object any more: %v", err)
		}
	})
}
