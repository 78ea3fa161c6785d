// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// FieldManager owns the definitions that Install wrote.
const FieldManager = "spokelet"

func crdResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Install applies the definitions of the set and returns when all of them are
// established. A definition that exists and whose versions were not written by
// Install is left as it is: OCM, or another Work controller, may own it in a
// newer version, also one that was installed over ours.
func Install(ctx context.Context, client dynamic.Interface, set Set) error {
	objects, err := set.Objects()
	if err != nil {
		return err
	}
	return InstallObjects(ctx, client, objects)
}

// InstallObjects does what Install does with definitions that are in no set.
func InstallObjects(ctx context.Context, client dynamic.Interface, objects []*unstructured.Unstructured) error {
	for _, obj := range objects {
		if err := install(ctx, client.Resource(crdResource()), obj); err != nil {
			return fmt.Errorf("definition %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

// Remove deletes the definitions of the set that Install wrote, and with them
// every object of their kinds.
func Remove(ctx context.Context, client dynamic.Interface, set Set) error {
	objects, err := set.Objects()
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := remove(ctx, client.Resource(crdResource()), obj.GetName()); err != nil {
			return fmt.Errorf("definition %s: %w", obj.GetName(), err)
		}
	}
	return nil
}

func remove(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	live, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if !isOurs(live) {
		return nil
	}
	uid := live.GetUID()
	err = client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

func install(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	live, err := client.Get(ctx, obj.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get: %w", err)
	}
	if err != nil || isOurs(live) {
		live, err = client.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	return waitEstablished(ctx, client, live)
}

// isOurs reports whether Install wrote the versions that the definition has. They
// are one field: who changes any of them owns all.
func isOurs(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && hasVersions(e.FieldsV1)
	})
}

func hasVersions(set *metav1.FieldsV1) bool {
	if set == nil {
		return false
	}
	var owned struct {
		Spec map[string]any `json:"f:spec"`
	}
	if err := json.Unmarshal(set.GetRawBytes(), &owned); err != nil {
		return false
	}
	_, found := owned.Spec["f:versions"]
	return found
}

// waitEstablished waits on a watch from the version in hand.
func waitEstablished(ctx context.Context, client dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	if isEstablished(obj) {
		return nil
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, obj.GetName()).String()
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = only
		return client.Watch(ctx, o)
	}}
	_, err := watchtools.Until(ctx, obj.GetResourceVersion(), watcher, func(e watch.Event) (bool, error) {
		got, ok := e.Object.(*unstructured.Unstructured)
		return ok && e.Type != watch.Deleted && isEstablished(got), nil
	})
	if err != nil {
		return fmt.Errorf("wait until established: %w", err)
	}
	return nil
}

func isEstablished(obj *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}
