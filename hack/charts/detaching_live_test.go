// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// madeForClusters are an object of each kind that is made for a cluster in its namespace.
func madeForClusters() map[schema.GroupVersionResource]map[string]any {
	configMap := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
	workload := map[string]any{"workload": map[string]any{"manifests": []any{configMap}}}
	of := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	object := func(kind string, spec map[string]any) map[string]any {
		return map[string]any{"kind": kind, "metadata": map[string]any{"name": "new"}, "spec": spec}
	}
	return map[schema.GroupVersionResource]map[string]any{
		of("work.open-cluster-management.io", "v1", "manifestworks"): object("ManifestWork", workload),
		of("multicluster.x-k8s.io", "v1alpha1", "works"):             object("Work", workload),
		of("mcm.ibm.com", "v1alpha1", "works"): object("Work", map[string]any{
			"type": "Resource", "cluster": map[string]any{"name": "store1"},
			"scope": map[string]any{"resourceType": "pods"},
		}),
		of("view.open-cluster-management.io", "v1beta1", "managedclusterviews"): object("ManagedClusterView", map[string]any{
			"scope": map[string]any{"resource": "pods", "name": "a", "namespace": "default"},
		}),
		of("action.open-cluster-management.io", "v1beta1", "managedclusteractions"): object("ManagedClusterAction", map[string]any{
			"actionType": "Delete", "kube": map[string]any{"resource": "pods", "name": "a", "namespace": "default"},
		}),
	}
}

func TestNothingNewIsMadeForAClusterThatIsBeingDetached(t *testing.T) {
	h := newInstalledHub(t)
	admin := dynamic.NewForConfigOrDie(h.config)
	for _, file := range []string{
		"work/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml", "multicluster/multicluster.x-k8s.io_works.yaml", "mcm/mcm.ibm.com_works.yaml",
		"view/view.open-cluster-management.io_managedclusterviews.yaml", "action/action.open-cluster-management.io_managedclusteractions.yaml",
	} {
		define(t, admin, "api/crds/"+file)
	}
	create := func(resource schema.GroupVersionResource, object map[string]any, options metav1.CreateOptions) error {
		u := &unstructured.Unstructured{Object: object}
		u.SetAPIVersion(resource.GroupVersion().String())
		_, err := admin.Resource(resource).Namespace(h.namespace).Create(t.Context(), u.DeepCopy(), options)
		return err
	}
	label := func(value string) {
		_, err := h.admin.CoreV1().Namespaces().Patch(t.Context(), h.namespace, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"spokelet.io/detaching":`+value+`}}}`), metav1.PatchOptions{})
		h.must(err)
	}
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `cluster "`+h.namespace+`" is being detached: nothing new is made for it`)
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for resource, object := range madeForClusters() {
		livetest.Eventually(t, resource.Resource+" are made", func() bool { return create(resource, object, dryRun) == nil })
	}
	label(`"true"`)
	for resource, object := range madeForClusters() {
		livetest.Eventually(t, "new "+resource.GroupResource().String()+" are refused", func() bool { return refused(create(resource, object, dryRun)) })
	}
	label(`null`)
	for resource, object := range madeForClusters() {
		livetest.Eventually(t, resource.Resource+" are made again", func() bool { return create(resource, object, dryRun) == nil })
	}
}
