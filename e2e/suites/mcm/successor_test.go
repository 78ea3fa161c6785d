// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// condition is nil if the object has one of a status and reason, with a word in its message.
func (o object) condition(kind, status, reason, word string) error {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		c := object{unstructured.Unstructured{Object: c.(map[string]any)}}
		if c.field("type") != kind {
			continue
		}
		if c.field("status") != status || c.field("reason") != reason || !strings.Contains(c.field("message"), word) {
			return fmt.Errorf("condition is %s %s %q", c.field("status"), c.field("reason"), c.field("message"))
		}
		return nil
	}
	return fmt.Errorf("no condition %s", kind)
}

func clusterView(name, scope string) string {
	return fmt.Sprintf("apiVersion: view.open-cluster-management.io/v1beta1\nkind: ManagedClusterView\nmetadata: {name: %s, namespace: spoke1}\nspec: {scope: %s}\n", name, scope)
}

func clusterAction(name, spec string) string {
	return fmt.Sprintf("apiVersion: action.open-cluster-management.io/v1beta1\nkind: ManagedClusterAction\nmetadata: {name: %s, namespace: spoke1}\nspec: %s\n", name, spec)
}

func (s *tests) successors(t *testing.T) {
	act := func(name, spec, status, reason, word string) {
		t.Helper()
		s.apply(t, clusterAction(name, spec))
		s.until(t, actions, "spoke1", name, name, func(o object) error { return o.condition("Completed", status, reason, word) })
	}
	template := "{apiVersion: v1, kind: ConfigMap, metadata: {name: succeeded, namespace: bob}, data: {a: b}}"
	act("s-create", "{actionType: Create, kube: {template: "+template+"}}", "True", "ActionDone", "Resource action is done.")
	act("s-again", "{actionType: Create, kube: {template: "+template+"}}", "False", "CreateResourceFailed", "already exists")
	view := func(name, scope, status, reason, word string) object {
		t.Helper()
		s.apply(t, clusterView(name, scope))
		return s.until(t, views, "spoke1", name, name, func(o object) error { return o.condition("Processing", status, reason, word) })
	}
	v := view("s-view", "{resource: configmaps, name: succeeded, namespace: bob}", "True", "GetResourceProcessing", "Watching resources successfully")
	if v.field("status", "result", "data", "a") != "b" {
		t.Errorf("the view shows %s", v.field("status", "result"))
	}
	s.Hub.Kubectl(t, "annotate", views, "-n", "spoke1", "s-view", "acm.io/user-identity=Y2Fyb2w=", "--overwrite")
	if v, err := s.get(t.Context(), views, "spoke1", "s-view"); err != nil || v.GetAnnotations()["acm.io/user-identity"] != "Ym9i" {
		t.Errorf("the author is %q, %v; want bob, whatever others write there", v.GetAnnotations()["acm.io/user-identity"], err)
	}
	act("s-update", `{actionType: Update, kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: succeeded, namespace: bob}, data: {a: c}}}}`, "True", "ActionDone", "")
	s.until(t, views, "spoke1", "s-view", "the view follows", func(o object) error {
		if got := o.field("status", "result", "data", "a"); got != "c" {
			return fmt.Errorf("it shows %q", got)
		}
		return nil
	})
	view("s-secret", "{resource: secrets, name: a, namespace: bob}", "False", "GetResourceFailed", "viewing secrets is not allowed")
	act("s-delete", "{actionType: Delete, kube: {resource: configmap, name: succeeded, namespace: bob}}", "True", "ActionDone", "")
	s.until(t, views, "spoke1", "s-view", "the object has gone, and its last state stays", func(o object) error {
		if got := o.field("status", "result", "data", "a"); got != "c" {
			return fmt.Errorf("it shows %q", got)
		}
		return o.condition("Processing", "False", "GetResourceFailed", "not found")
	})
	s.Hub.Kubectl(t, "delete", views, "-n", "spoke1", "--all")
}
