// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/testbed"
)

const (
	// rosa is who has views open; namespace is where they are on the hub.
	rosa      = "rosa"
	namespace = "rest"

	manyViews   = 5
	manyGadgets = 50
)

var worksResource = schema.GroupVersionResource{Group: "mcm.ibm.com", Version: "v1alpha1", Resource: "works"}

// viewRights let rosa have views of the first spoke, on the hub.
const viewRights = `
{apiVersion: v1, kind: Namespace, metadata: {name: rest}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: rest}, rules: [{apiGroups: [mcm.ibm.com], resources: [works], verbs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: rest, namespace: rest},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rest}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: rosa}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: rest, namespace: spoke1},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rest}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: rosa}]}
`

// spokeRights let her see what they are of.
const spokeRights = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: rest, namespace: default},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "hub:rosa"}]}
`

// openViews has five live views open.
func (s *tests) openViews(t *testing.T) {
	s.Hub.Apply(t, viewRights)
	s.Spoke().Apply(t, spokeRights)
	var views strings.Builder
	for i := range manyViews {
		fmt.Fprintf(&views, "apiVersion: mcm.ibm.com/v1alpha1\nkind: Work\nmetadata: {name: rest-%[1]d, namespace: rest}\n"+
			"spec: {cluster: {name: spoke1}, type: Resource, scope: {resourceType: configmaps, namespace: default, labelSelector: {rest: '%[1]d'}}}\n---\n", i)
	}
	// API servers judge by caches, which new rights reach a moment later.
	testbed.Until(t, "rosa may have views", testbed.Settle, func(ctx context.Context) error {
		_, err := s.Hub.As(rosa).RunInput(ctx, strings.NewReader(views.String()), "apply", "-f", "-")
		return err
	})
	testbed.Until(t, "all views are answered", testbed.Settle, func(ctx context.Context) error {
		list, err := s.Hub.Dyn.Resource(worksResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		answered := 0
		for _, w := range list.Items {
			kind, _, _ := unstructured.NestedString(w.Object, "status", "type")
			if kind != "Completed" {
				return fmt.Errorf("%s is %v", w.GetName(), w.Object["status"])
			}
			answered++
		}
		if answered != manyViews {
			return fmt.Errorf("there are %d", answered)
		}
		return nil
	})
}

// shareObjects has fifty objects shared with the first spoke.
func (s *tests) shareObjects(t *testing.T) {
	s.Hub.Apply(t, testbed.SharedDefinition("Gadget"))
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "rest=shared", "--overwrite")
	s.Hub.Apply(t, testbed.SharedResourceManifest(namespace, testbed.GadgetsResource, "clusterSelector: {matchLabels: {rest: shared}}, definition: Brought"))
	var gadgets strings.Builder
	for i := range manyGadgets {
		gadgets.WriteString(testbed.Gadget("spoke1", fmt.Sprintf("rest-%d", i), "a: one"))
	}
	s.Hub.Apply(t, gadgets.String())
	s.untilGadgets(t, manyGadgets)
}

// untilGadgets waits until the spoke has so many, each with the hub's value. None are there
// before their definition is.
func (s *tests) untilGadgets(t *testing.T, want int) {
	t.Helper()
	testbed.Until(t, fmt.Sprintf("%d objects are in the spoke", want), testbed.Settle, func(ctx context.Context) error {
		list, err := s.Spoke().Dyn.Resource(testbed.GadgetsResource).Namespace("default").List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		got := 0
		if list != nil {
			for _, gadget := range list.Items {
				if value, _, _ := unstructured.NestedString(gadget.Object, "spec", "a"); value == "one" {
					got++
				}
			}
		}
		if got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// remove leaves the clusters as other suites expect them.
func (s *tests) remove(t *testing.T) {
	s.Hub.Kubectl(t, "delete", "gadgets", "-n", "spoke1", "--all")
	s.untilGadgets(t, 0)
	s.Hub.Kubectl(t, "delete", "sharedresource", namespace)
	for _, site := range []*testbed.Site{s.Hub, s.Spoke()} {
		site.Kubectl(t, "delete", "crd", "gadgets.example.com")
	}
	s.Hub.Kubectl(t, "label", "managedcluster", "spoke1", "rest-")
	s.Hub.Kubectl(t, "delete", "works.mcm.ibm.com", "-n", namespace, "--all")
	s.Hub.Kubectl(t, "delete", "rolebinding", "rest", "-n", "spoke1")
	s.Hub.Kubectl(t, "delete", "namespace/rest", "clusterrole/rest", "--timeout=180s")
	s.Spoke().Kubectl(t, "delete", "rolebinding", "rest", "-n", "default")
}
