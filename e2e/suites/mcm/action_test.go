// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/e2e/testbed"
)

// configMap is an action on one of bob's.
func configMap(verb, name, data string) string {
	return fmt.Sprintf("type: Action, actionType: %s, kube: {namespace: bob, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: %s}}", verb, name, data)
}

func (s *tests) actions(t *testing.T) {
	maps := s.Spoke().Kube.CoreV1().ConfigMaps("bob")
	s.apply(t, work("a-create", "spoke1", configMap("Create", "acted", "{a: b}")))
	w := s.until(t, works, "bob", "a-create", "an object is created", func(w object) error { return w.is("Completed") })
	live, err := maps.Get(t.Context(), "acted", getOptions)
	if err != nil {
		t.Fatal(err)
	}
	if w.field("status", "result", "metadata", "uid") != string(live.UID) {
		t.Errorf("the result is %s, want the object that is there", w.field("status", "result"))
	}
	if _, err := maps.Patch(t.Context(), "acted", types.MergePatchType, []byte(`{"metadata":{"labels":{"foreign":"label"}},"data":{"foreign":"value"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.apply(t, work("a-update", "spoke1", configMap("update", "acted", "{a: c}")))
	s.until(t, works, "bob", "a-update", "an object is updated", func(w object) error { return w.is("Completed") })
	if live, err = maps.Get(t.Context(), "acted", getOptions); err != nil {
		t.Fatal(err)
	}
	if live.Data["a"] != "c" || live.Data["foreign"] != "value" || live.Labels["foreign"] != "label" {
		t.Errorf("after an update: %v, %v; want what others own to stay", live.Data, live.Labels)
	}
	s.apply(t, work("a-update", "spoke1", configMap("update", "acted", "{a: d}")))
	testbed.Until(t, "an edited action is done again", testbed.Settle, func(ctx context.Context) error {
		live, err := maps.Get(ctx, "acted", getOptions)
		if err == nil && live.Data["a"] != "d" {
			err = fmt.Errorf("it has %v", live.Data)
		}
		return err
	})
	s.apply(t, work("a-again", "spoke1", configMap("Create", "acted", "{a: b}")))
	s.until(t, works, "bob", "a-again", "what is there is not created", func(w object) error { return w.is("Failed", "already exists") })
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "a-create", "a-update", "a-again")
	if _, err := maps.Get(t.Context(), "acted", getOptions); err != nil {
		t.Errorf("the deletion of a work undoes what it did: %v", err)
	}
	s.apply(t, work("a-delete", "spoke1", "type: action, actionType: DELETE, kube: {resource: cm, name: acted, namespace: bob}"))
	s.until(t, works, "bob", "a-delete", "an object is deleted", func(w object) error { return w.is("Completed") })
	if _, err := maps.Get(t.Context(), "acted", getOptions); !apierrors.IsNotFound(err) {
		t.Errorf("after its deletion: %v", err)
	}
}

// badInput: what the hub's API server refuses, and what fails in the hub and in the spoke.
func (s *tests) badInput(t *testing.T) {
	testbed.Refused(t, "an action of nothing", s.Hub.As(bob), work("bad", "spoke1", "type: Action, actionType: Create"), []string{"apply", "-f", "-"},
		"exactly one of spec.helm and spec.kube")
	fails := map[string]struct{ cluster, spec, word string }{
		"f-cluster": {"nowhere", configMap("Create", "x", "{}"), `cluster "nowhere" does not exist`},
		"f-action":  {"spoke1", configMap("Restart", "x", "{}"), `"Restart" is none of Create, Update and Delete`},
		"f-missing": {"spoke1", "type: Resource, scope: {resourceType: configmaps, namespace: bob, name: missing}", "not found"},
		"f-kind":    {"spoke1", "type: Action, actionType: Create, kube: {template: {apiVersion: example.com/v1, kind: Unicorn, metadata: {name: u, namespace: bob}}}", "no such resource"},
	}
	for name, tc := range fails {
		s.apply(t, work(name, tc.cluster, tc.spec))
	}
	for name, tc := range fails {
		s.until(t, works, "bob", name, name, func(w object) error { return w.is("Failed", tc.word) })
	}
}
