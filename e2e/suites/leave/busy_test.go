// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package leave

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/testbed"
)

var manifestWorks = schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}

// dora makes works for a cluster until it has left. Her rights on the hub.
const dorasRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dora}
rules: [{apiGroups: [mcm.ibm.com], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dora}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dora}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dora}]
`

// Those in the spoke.
const dorasRightsThere = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: dora, namespace: default}
rules: [{apiGroups: [""], resources: [configmaps], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: dora, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: dora}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "hub:dora"}]
`

// dorasObjects are an action that makes a ConfigMap, and a view of it.
const dorasObjects = `
apiVersion: mcm.ibm.com/v1alpha1
kind: WorkSet
metadata: {name: once, namespace: left}
spec:
  clusterSelector: {matchLabels: {leaves: soon}}
  template:
    spec: {type: Action, actionType: Create, kube: {namespace: default, template: {apiVersion: v1, kind: ConfigMap, metadata: {name: once}, data: {a: b}}}}
---
apiVersion: mcm.ibm.com/v1alpha1
kind: ResourceView
metadata: {name: once, namespace: left}
spec:
  clusterSelector: {matchLabels: {leaves: soon}}
  scope: {resource: configmaps, namespace: default, resourceName: once}
`

// makeBusy has controllers make works for a cluster: those of WorkSets and ResourceViews,
// and one that makes its ManifestWork again whenever it is gone.
func (s *tests) makeBusy(t *testing.T, spoke *testbed.Site) {
	t.Helper()
	spoke.Apply(t, dorasRightsThere)
	s.Hub.Apply(t, dorasRights)
	s.Hub.Kubectl(t, "label", "managedcluster", spoke.Name, "leaves=soon", "--overwrite")
	testbed.Until(t, "WorkSet and ResourceView of dora", testbed.Settle, func(ctx context.Context) error {
		_, err := s.Hub.As("dora").RunInput(ctx, strings.NewReader(dorasObjects), "apply", "-f", "-")
		return err
	})
	s.untilMade(t, spoke, "once")
	// If the action is done again, it is there again.
	spoke.Kubectl(t, "delete", "configmap", "once", "-n", "default")
	s.makeAgain(t, spoke.Name)
	s.untilMade(t, spoke, "again")
}

func (s *tests) untilMade(t *testing.T, in *testbed.Site, name string) {
	t.Helper()
	testbed.Until(t, "ConfigMap "+name+" in "+in.Name, testbed.Settle, func(ctx context.Context) error {
		_, err := in.Kube.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// makeAgain is a controller of a user, which acts when its ManifestWork goes. It ends with
// the test, or with the cluster's namespace.
func (s *tests) makeAgain(t *testing.T, cluster string) {
	t.Helper()
	works := s.Hub.Dyn.Resource(manifestWorks).Namespace(cluster)
	work := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
		"metadata": map[string]any{"name": "again"},
		"spec": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "again", "namespace": "default"},
		}}}},
	}}
	events, err := works.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=again"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for event := range events.ResultChan() {
			if event.Type != "DELETED" {
				continue
			}
			_, err := works.Create(t.Context(), work, metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is being detached") {
				t.Errorf("a work that was made again was answered %v", err)
			}
		}
	})
	t.Cleanup(func() {
		events.Stop()
		group.Wait()
	})
}

// detachBusy has a cluster that is connected leave in order, within half a minute: nothing
// that was made for it comes again.
func (s *tests) detachBusy(t *testing.T) {
	spoke := s.Spokes[1]
	s.Hub.Kubectl(t, "wait", "--for=condition=Ready", "node/"+spoke.Name, "--timeout=180s")
	s.makeBusy(t, spoke)
	s.startLeft(t, spoke)
	began := time.Now()
	s.Hub.Kubectl(t, "spokelet", "detach", spoke.Name, "--timeout=180s")
	t.Logf("detached within %s", time.Since(began).Round(time.Second))
	for what, args := range map[string][]string{
		"pods":                          {"get", "pods", "-A", "-l", "spokelet.io/hub", "-o", "name"},
		"what the action made once":     {"get", "configmap", "once", "-n", "default", "--ignore-not-found", "-o", "name"},
		"what was applied":              {"get", "configmap", "again", "-n", "default", "--ignore-not-found", "-o", "name"},
		"anchors of ManifestWorks":      {"get", "appliedmanifestworks", "-o", "name"},
		"anchors of multicluster Works": {"get", "appliedworks", "-o", "name"},
	} {
		if out := spoke.Kubectl(t, args...); out != "" {
			t.Errorf("left in the cluster, %s: %s", what, out)
		}
	}
	if out := s.Hub.Kubectl(t, "get", "works.mcm.ibm.com", "-A", "-o", "name"); out != "" {
		t.Errorf("left on the hub: %s", out)
	}
}
