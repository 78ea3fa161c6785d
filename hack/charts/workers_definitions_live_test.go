// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// define makes what a file of the repository defines. It stays: tests of other packages may
// have objects of it.
func define(t *testing.T, client dynamic.Interface, file string) {
	t.Helper()
	raw, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(raw, &definition.Object); err != nil {
		t.Fatal(err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// TestARealHubSelectsWorkerDeploymentsByTheirScript: the API for wrangler reads no others.
func TestARealHubSelectsWorkerDeploymentsByTheirScript(t *testing.T) {
	config := livetest.Config(t, "SPOKELET_HUB_KUBECONFIG")
	client := dynamic.NewForConfigOrDie(config)
	namespace := livetest.Namespace(t, kubernetes.NewForConfigOrDie(config), "scripts-")
	define(t, client, "workers/api/crds/api.worker-deployment_workerdeployments.yaml")
	scripts := client.Resource(schema.GroupVersionResource{Group: "api.worker-deployment", Version: "v1alpha1", Resource: "workerdeployments"}).Namespace(namespace)
	for name, script := range map[string]string{"a": "hello", "b": "other", "c": "hello"} {
		wd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`
apiVersion: api.worker-deployment/v1alpha1
kind: WorkerDeployment
metadata: {name: `+name+`}
spec:
  template:
    scriptName: `+script+`
    compatibilityDate: "2026-01-15"
`), &wd.Object); err != nil {
			t.Fatal(err)
		}
		livetest.Eventually(t, "WorkerDeployments are served", func() bool {
			_, err := scripts.Create(t.Context(), wd, metav1.CreateOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	list, err := scripts.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.template.scriptName=hello"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, wd := range list.Items {
		names = append(names, wd.GetName())
	}
	if diff := cmp.Diff([]string{"a", "c"}, names); diff != "" {
		t.Errorf("those of script hello (-want +got):\n%s", diff)
	}
}
