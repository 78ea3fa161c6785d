// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/workers/api"
)

// patchStatus writes a status if it changed. The object is the one from the cache, changed.
func patchStatus[T client.Object](ctx context.Context, c client.Client, before, after T) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("write status of %s: %w", after.GetName(), err)
	}
	return nil
}

// patchObject writes the changes of an object, if nobody else has written it meanwhile.
func patchObject(ctx context.Context, c client.Client, kind string, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("patch %s %s: %w", kind, after.GetName(), err)
	}
	return nil
}

func removeFinalizer[T interface {
	client.Object
	DeepCopy() T
}](ctx context.Context, c client.Client, kind string, o T) error {
	before := o.DeepCopy()
	controllerutil.RemoveFinalizer(o, api.Finalizer)
	return patchObject(ctx, c, kind, before, o)
}

// listIn lists the objects of a namespace.
func listIn(ctx context.Context, c client.Reader, list client.ObjectList, namespace string) error {
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list %T in namespace %s: %w", list, namespace, err)
	}
	return nil
}

// deleteObject deletes an object, which may not exist any more.
func deleteObject(ctx context.Context, c client.Client, kind string, o client.Object, opts ...client.DeleteOption) error {
	if err := client.IgnoreNotFound(c.Delete(ctx, o, opts...)); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}

// isDeleting reports whether an object is being deleted.
func isDeleting(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() }

// compareAge orders objects: by age, then by name.
func compareAge(a, b client.Object) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	switch {
	case at.Before(&bt):
		return -1
	case bt.Before(&at):
		return 1
	case a.GetName() < b.GetName():
		return -1
	default:
		return 1
	}
}

// accountLabels are the labels of objects of an account outside of its namespace.
func accountLabels(account, namespace string) map[string]string {
	return map[string]string{api.LabelAccount: account, api.LabelNamespace: namespace}
}

// hasOwner reports whether the owners contain a UID.
func hasOwner(owners []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == uid })
}
