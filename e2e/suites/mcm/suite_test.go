// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mcm tests what looks and acts in clusters: the Works of mcm.ibm.com,
// ManagedClusterView and ManagedClusterAction, WorkSet and ResourceView. Manifests are
// written as users write them, and kubectl applies them.
package mcm

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tests are those of this suite.
type tests struct {
	*testbed.Testbed

	charts string // where charts are served to the first spoke
}

func TestMCM(t *testing.T) {
	s := &tests{Testbed: testbed.Open(t)}
	s.serveCharts(t)
	testbed.InOrder(t, 1,
		testbed.Step{Name: "bob may look and act", Run: s.letBob},
		testbed.Step{Name: "a view is live", Run: s.viewIsLive},
		testbed.Step{Name: "beside each other", Run: func(t *testing.T) {
			testbed.Parallel(t, map[string]func(*testing.T){
				"the document's examples work":                   s.documentsExamples,
				"an action is done once and shows what is there": s.actions,
				"bad input is refused or fails by name":          s.badInput,
				"nobody gets more than his rights":               s.rights,
				"successors behave as the originals":             s.successors,
				"a release comes, changes and goes":              s.releases,
				"a release that fails says why":                  s.failedReleases,
				"a process of helm ends, and nothing else":       s.hungryProcess,
				"a cluster that is away is waited for":           s.clusterIsAway,
			})
		}},
		testbed.Step{Name: "a hub that is killed does nothing twice", Run: s.hubIsKilled},
		testbed.Step{Name: "a tunnel that is cut does nothing twice", Run: s.tunnelIsCut},
		testbed.Step{Name: "an agent that is killed tells what it does not know", Run: s.agentIsKilledInstalling},
		testbed.Step{Name: "no race was seen", Run: s.NoRace},
		testbed.Step{Name: "all of it is removed", Run: s.remove},
	)
}

const (
	works   = "works.mcm.ibm.com"
	views   = "managedclusterviews.view.open-cluster-management.io"
	actions = "managedclusteractions.action.open-cluster-management.io"
)

// bob works in the spokes, mostly in the namespace of his name.
const bob = "bob"

// bobsRights let him make what this suite makes, on the hub and in the spokes.
const bobsRights = `
apiVersion: v1
kind: Namespace
metadata: {name: bob}
`

const hubRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bob}
rules: [{apiGroups: [mcm.ibm.com, view.open-cluster-management.io, action.open-cluster-management.io], resources: ["*"], verbs: ["*"]}, {apiGroups: [live.spokelet.io], resources: [viewworks], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bob}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bob}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`

const spokeRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bob}
rules:
- {apiGroups: ["", apps, batch], resources: [configmaps, secrets, pods, deployments, replicasets, jobs], verbs: ["*"]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bob}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bob}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "hub:bob"}]
`

func (s *tests) letBob(t *testing.T) {
	s.Hub.Apply(t, bobsRights+"---"+hubRights)
	s.remove(t) // an earlier run that failed may have left some
	for _, spoke := range s.Spokes {
		spoke.Apply(t, bobsRights+"---"+spokeRights)
		// Pods of the namespace run as it.
		spoke.Kubectl(t, "wait", "-n", "bob", "serviceaccount/default", "--for=create", "--timeout=60s")
		spoke.Kubectl(t, "delete", "configmaps,secrets,pods,deployments,jobs", "-n", "bob", "--all")
	}
	s.apply(t, work("ready", "spoke1", `type: Resource, scope: {resourceType: configmaps, namespace: bob}`))
	s.until(t, works, "bob", "ready", "the rights are known", func(w object) error { return w.is("Completed") })
	s.Hub.Kubectl(t, "delete", works, "-n", "bob", "ready")
}

// remove leaves no work that other suites would see asked for.
func (s *tests) remove(t *testing.T) {
	s.Hub.Kubectl(t, "delete", works+",worksets.mcm.ibm.com,resourceviews.mcm.ibm.com", "-n", "bob", "--all")
	s.Hub.Kubectl(t, "delete", views+","+actions, "-n", "spoke1", "--all")
}

// work is one in bob's namespace.
func work(name, cluster, spec string) string {
	return fmt.Sprintf("apiVersion: mcm.ibm.com/v1alpha1\nkind: Work\nmetadata: {name: %s, namespace: bob}\nspec: {cluster: {name: %s}, %s}\n", name, cluster, spec)
}

// apply applies a manifest as bob.
func (s *tests) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := s.Hub.As(bob).RunInput(t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// object is what kubectl shows of one.
type object struct{ unstructured.Unstructured }

func (o object) field(path ...string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok {
		return text
	}
	raw, _ := json.Marshal(value)
	return string(raw)
}

// is returns nil if the status of a Work has a type and a reason with each of the words.
func (o object) is(kind string, words ...string) error {
	if got := o.field("status", "type"); got != kind {
		return fmt.Errorf("status is %q, %q", got, o.field("status", "reason"))
	}
	if answered, want := o.field("status", "observedGeneration"), o.field("metadata", "generation"); kind == "Completed" && answered != want {
		return fmt.Errorf("generation %s is answered, want %s", answered, want)
	}
	for _, word := range words {
		if !strings.Contains(o.field("status", "reason"), word) {
			return fmt.Errorf("reason %q does not name %q", o.field("status", "reason"), word)
		}
	}
	return nil
}

// items are those of the result.
func (o object) items() (items []unstructured.Unstructured) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "result", "items")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		items = append(items, unstructured.Unstructured{Object: fields})
	}
	return items
}

// names are those of the items of the result.
func (o object) names() (names []string) {
	for _, item := range o.items() {
		names = append(names, item.GetName())
	}
	return names
}

func (s *tests) get(ctx context.Context, resource, namespace, name string) (object, error) {
	group := strings.SplitN(resource, ".", 2)
	version := "v1beta1"
	if group[1] == "mcm.ibm.com" {
		version = "v1alpha1"
	}
	gvr := gvrOf(group[1], version, group[0])
	u, err := s.Hub.Dyn.Resource(gvr).Namespace(namespace).Get(ctx, name, getOptions)
	if err != nil {
		return object{}, err
	}
	return object{*u}, nil
}

// until waits until an object is as wanted.
func (s *tests) until(t *testing.T, resource, namespace, name, what string, wanted func(object) error) object {
	t.Helper()
	var last object
	testbed.Until(t, what, testbed.Settle, func(ctx context.Context) error {
		o, err := s.get(ctx, resource, namespace, name)
		if err != nil {
			return err
		}
		last = o
		return wanted(o)
	})
	return last
}
