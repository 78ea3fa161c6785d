// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveClients are of a real API server, with a namespace of their own.
func liveClients(t *testing.T) (dynamic.Interface, kubernetes.Interface, string) {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client, kube, livetest.Namespace(t, kube, "merge-")
}

// resourceOf finds how a kind is addressed.
func resourceOf(t *testing.T, kube kubernetes.Interface, client dynamic.Interface, u *unstructured.Unstructured, namespace string) dynamic.ResourceInterface {
	t.Helper()
	gvk := u.GroupVersionKind()
	list, err := kube.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		if r.Kind != gvk.Kind || strings.Contains(r.Name, "/") {
			continue
		}
		at := client.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: r.Name})
		if !r.Namespaced {
			return at
		}
		u.SetNamespace(namespace)
		return at.Namespace(namespace)
	}
	t.Fatalf("%s is not served", gvk)
	return nil
}

// Every file has an object as people write it, and a change of it.
func TestLiveMergeConverges(t *testing.T) {
	client, kube, namespace := liveClients(t)
	files, err := filepath.Glob("testdata/live/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			created, changed, _ := bytes.Cut(text, []byte("\n---\n"))
			required, next := object(t, string(created)), object(t, string(changed))
			at := resourceOf(t, kube, client, required, namespace)
			next.SetNamespace(required.GetNamespace())
			fresh, err := NewObject(required)
			if err != nil {
				t.Fatal(err)
			}
			live, err := at.Create(t.Context(), fresh, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = at.Delete(context.WithoutCancel(t.Context()), required.GetName(), metav1.DeleteOptions{}) })
			if got, verdict, err := Merge(required, live); verdict != Unchanged || err != nil {
				t.Errorf("what was created: %s, %v\nlive %v\nnext %v", verdict, err, live.Object, got.Object)
			}
			live = written(t, at, next, live, Merge)
			if _, verdict, err := Merge(next, live); verdict != Unchanged || err != nil {
				t.Errorf("what was changed: %s, %v", verdict, err)
			}
			written(t, at, next, live, Replace)
		})
	}
}

// written does what is decided, again if somebody else was faster.
func written(t *testing.T, at dynamic.ResourceInterface, required, live *unstructured.Unstructured,
	decide func(a, b *unstructured.Unstructured) (*unstructured.Unstructured, Verdict, error),
) *unstructured.Unstructured {
	t.Helper()
	for range 10 {
		wanted, verdict, err := decide(required, live)
		switch {
		case err != nil:
			t.Fatal(err)
		case verdict == Unchanged:
			return live
		case verdict == Recreate:
			if err := at.Delete(t.Context(), required.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			live, err = at.Create(t.Context(), wanted, metav1.CreateOptions{})
		default:
			live, err = at.Update(t.Context(), wanted, metav1.UpdateOptions{})
		}
		if err == nil {
			return live
		}
		if !apierrors.IsConflict(err) {
			t.Fatalf("%s is refused: %v", verdict, err)
		}
		if live, err = at.Get(t.Context(), required.GetName(), metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("somebody else is always faster")
	return nil
}
