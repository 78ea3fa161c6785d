// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveHub is a namespace of the hub's real API server, with our definitions in place.
type liveHub struct {
	dynamic.Interface

	namespace string
}

func newLiveHub(t *testing.T) liveHub {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	pool, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfigAndClient(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfigAndClient(cfg, pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := Install(t.Context(), client, Hub()); err != nil {
		t.Fatal(err)
	}
	return liveHub{Interface: client, namespace: livetest.Namespace(t, kube, "crds-")}
}

func (h liveHub) of(obj *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	return h.Resource(resource).Namespace(h.namespace)
}

func (h liveHub) works(version string) dynamic.ResourceInterface {
	return h.Resource(schema.GroupVersionResource{Group: "mcm.ibm.com", Version: version, Resource: "works"}).Namespace(h.namespace)
}

func (h liveHub) create(t *testing.T, c validationCase) *unstructured.Unstructured {
	t.Helper()
	obj := c.object(t)
	created, err := h.of(obj).Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func TestLiveValidationOfObjects(t *testing.T) {
	hub := newLiveHub(t)
	for name, tc := range validationCases() {
		t.Run(name, func(t *testing.T) {
			obj := tc.object(t)
			_, err := hub.of(obj).Create(t.Context(), obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			tc.check(t, err)
			if err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("refused with %v, want Invalid", err)
			}
		})
	}
}

func TestLiveWorksPreserveUnknownFields(t *testing.T) {
	hub := newLiveHub(t)
	made := hub.create(t, validationCase{kind: "mcm.ibm.com/v1beta1 Work", spec: `{
		cluster: {name: a}, type: Resource, scope: {resourceType: pods, labelSelector: {app: nginx, tier: ""}},
		kube: {template: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {b: c}}, data: {d: e}}}}`})
	result := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{map[string]any{"kind": "Pod"}}}
	if err := unstructured.SetNestedField(made.Object, result, "status", "result"); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.works("v1alpha1").UpdateStatus(t.Context(), alpha(made), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			got, err := hub.works(version).Get(t.Context(), made.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(made.Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("spec (-made +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]any{"result": result}, got.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if got.GetGeneration() != 1 {
				t.Errorf("a status made generation %d", got.GetGeneration())
			}
		})
	}
}

// alpha is the same object in the other version.
func alpha(obj *unstructured.Unstructured) *unstructured.Unstructured {
	out := obj.DeepCopy()
	out.SetAPIVersion("mcm.ibm.com/v1alpha1")
	return out
}

func TestLiveWorkStatusIsNotValidated(t *testing.T) {
	hub := newLiveHub(t)
	made := hub.create(t, validationCase{spec: "{cluster: {name: a}, type: Resource, scope: {resourceType: pods}}"})
	if err := unstructured.SetNestedField(made.Object, "completed", "status", "type"); err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(made.Object, "spec", "scope")
	got, err := hub.of(made).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kind, _, _ := unstructured.NestedString(got.Object, "status", "type"); kind != "completed" {
		t.Errorf("status.type is %q", kind)
	}
	if _, found, _ := unstructured.NestedMap(got.Object, "spec", "scope"); !found {
		t.Error("a status changed the spec")
	}
}

func TestLiveWorkUpdateIsValidated(t *testing.T) {
	hub := newLiveHub(t)
	made := hub.create(t, validationCase{spec: "{cluster: {name: a}, type: Resource, scope: {resourceType: pods}}"})
	unstructured.RemoveNestedField(made.Object, "spec", "scope")
	_, err := hub.of(made).Update(t.Context(), made, metav1.UpdateOptions{})
	validationCase{reason: "as when it is made", want: "spec.scope.resourceType is required"}.check(t, err)
}

func TestLiveWorksAreSelectableByType(t *testing.T) {
	hub := newLiveHub(t)
	hub.create(t, validationCase{name: "looks", spec: "{cluster: {name: a}, type: Resource, scope: {resourceType: pods}}"})
	hub.create(t, validationCase{name: "changes", spec: "{cluster: {name: a}, type: Action, kube: {}}"})
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			list, err := hub.works(version).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.type=Action"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range list.Items {
				got = append(got, o.GetName())
			}
			if diff := cmp.Diff([]string{"changes"}, got); diff != "" {
				t.Errorf("works (-want +got):\n%s", diff)
			}
		})
	}
}
