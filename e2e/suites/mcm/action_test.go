// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"strings"
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
	s.apply(t, work("a-elsewhere", "spoke1", "type: Action, actionType: Create, kube: {namespace: bob, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: default}}}"))
	w = s.until(t, works, "bob", "a-elsewhere", "the namespace of the action counts, not its template's", func(w object) error { return w.is("Completed") })
	if got := w.field("status", "result", "metadata", "namespace"); got != "bob" {
		t.Errorf("it is created in namespace %q", got)
	}
}

func (s *tests) badInput(t *testing.T) {
	template := "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: bob}}"
	refused := map[string]struct{ manifest, word string }{
		"a name that begins with a digit": {strings.Replace(work("x", "spoke1", configMap("Create", "x", "{}")), "name: x,", `name: "1234",`, 1), "DNS-1035"},
		"no cluster":                      {work("bad", `""`, configMap("Create", "x", "{}")), "spec.cluster.name is required"},
		"a view of nothing":               {work("bad", "spoke1", "type: Resource"), "spec.scope.resourceType is required"},
		"an action of nothing":            {work("bad", "spoke1", "type: Action, actionType: Create"), "exactly one of spec.helm and spec.kube"},
		"an action of two things":         {work("bad", "spoke1", "type: Action, actionType: Create, helm: {releaseName: a}, kube: {template: "+template+"}"), "exactly one of spec.helm and spec.kube"},
		"a release without a name":        {work("bad", "spoke1", "type: Action, actionType: Create, helm: {chartURL: 'https://a/b.tgz'}"), "spec.helm.releaseName is required"},
		"a chart that is nowhere":         {work("bad", "spoke1", "type: Action, actionType: Create, helm: {releaseName: a, chartURL: '::no url'}"), "spec.helm.chartURL must be a URL"},
	}
	for name, tc := range refused {
		testbed.Refused(t, name, s.Hub.As(bob), tc.manifest, []string{"apply", "-f", "-"}, tc.word)
	}
	fails := map[string]struct{ spec, word string }{
		"f-action":   {"type: Action, actionType: Restart, kube: {template: " + template + "}", `"Restart" is none of Create, Update and Delete`},
		"f-type":     {"type: Other, kube: {template: " + template + "}", `"Other" is neither Resource nor Action`},
		"f-helm":     {"type: Action, actionType: Create, helm: {releaseName: a}", "spec.helm.chartURL is missing"},
		"f-resource": {"type: Resource, scope: {resourceType: unicorns}", "no such resource"},
		"f-missing":  {"type: Resource, scope: {resourceType: configmaps, namespace: bob, name: missing}", "not found"},
		"f-selector": {"type: Resource, scope: {resourceType: configmaps, labelSelector: {matchLabels: {a: b}, c: d}}", "selector"},
		"f-kind":     {"type: Action, actionType: Create, kube: {template: {apiVersion: example.com/v1, kind: Unicorn, metadata: {name: u, namespace: bob}}}", "no such resource"},
		"f-version":  {"type: Action, actionType: Create, kube: {template: {apiVersion: apps/v1beta9, kind: Deployment, metadata: {name: u, namespace: bob}}}", "use apps/v1"},
		"f-name":     {"type: Action, actionType: Create, kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {namespace: bob}}}", "no name"},
		"f-space":    {"type: Action, actionType: Create, kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: u}}}", "namespace must be set"},
		"f-gone":     {"type: Action, actionType: Update, kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: missing, namespace: bob}}}", "not found"},
		"f-delete":   {"type: Action, actionType: Delete, kube: {resource: configmaps, namespace: bob}", "names an object"},
	}
	for name, tc := range fails {
		s.apply(t, work(name, "spoke1", tc.spec))
	}
	s.apply(t, work("f-cluster", "nowhere", configMap("Create", "x", "{}")))
	for name, tc := range fails {
		s.until(t, works, "bob", name, name, func(w object) error { return w.is("Failed", tc.word) })
	}
	s.until(t, works, "bob", "f-cluster", "a cluster that is not there", func(w object) error { return w.is("Failed", `cluster "nowhere" does not exist`) })
}
