// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// releasePage is how many works are held at once while a cluster is released.
const releasePage = 100

func (w *Works) addFinalizer(ctx context.Context, k *kind, work client.Object) error {
	changed, err := w.patchFinalizers(ctx, k, work, controllerutil.AddFinalizer)
	if changed {
		w.ownWrites.Record(k.keyOf(work), work.GetResourceVersion(), struct{}{})
	}
	return err
}

func (w *Works) removeFinalizer(ctx context.Context, k *kind, work client.Object) error {
	_, err := w.patchFinalizers(ctx, k, work, controllerutil.RemoveFinalizer)
	return client.IgnoreNotFound(err)
}

// patchFinalizers writes the metadata alone, and nothing where change has nothing
// to do; work gets the new version.
func (w *Works) patchFinalizers(
	ctx context.Context, k *kind, work client.Object, change func(client.Object, string) bool,
) (changed bool, err error) {
	next := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: work.GetNamespace(), Name: work.GetName(),
		ResourceVersion: work.GetResourceVersion(), Finalizers: work.GetFinalizers(),
	}}
	gvk, err := apiutil.GVKForObject(k.New().Object(), w.client.Scheme())
	if err != nil {
		return false, fmt.Errorf("kind of %s works: %w", k.Name, err)
	}
	next.SetGroupVersionKind(gvk)
	before := next.DeepCopy()
	next.Finalizers = append([]string(nil), next.Finalizers...)
	if !change(next, k.Finalizer) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, next, patch, fieldOwner); err != nil {
		return false, fmt.Errorf("patch finalizers: %w", err)
	}
	work.SetResourceVersion(next.ResourceVersion)
	work.SetFinalizers(next.Finalizers)
	return true, nil
}

// Release removes our finalizers from the works in the namespace of a cluster that
// is going, and names them, as "<dialect>/<name>": their objects stay in the spoke. So do
// those of works whose deletion in the background has not ended.
func (w *Works) Release(ctx context.Context, cluster string) (left []string, err error) {
	for _, k := range w.kinds {
		if err := w.waitForPublishers(ctx, k, cluster); err != nil {
			return left, err
		}
		released, err := w.releaseKind(ctx, k, cluster)
		left = append(left, released...)
		if err != nil {
			return left, err
		}
	}
	return append(left, w.dropBackgroundDeletions(cluster)...), nil
}

// waitForPublishers waits for the runs that publish works of a cluster. One that began before the
// cache said that the cluster is going may have its finalizer yet to put on, and nobody
// would take that off.
func (w *Works) waitForPublishers(ctx context.Context, k *kind, cluster string) error {
	names, err := w.listNames(ctx, k, cluster)
	if err != nil {
		return err
	}
	for _, name := range names {
		key := k.key(name).String()
		w.keyLocks.LockKey(key)
		_ = w.keyLocks.UnlockKey(key)
	}
	return nil
}

func (w *Works) releaseKind(ctx context.Context, k *kind, cluster string) (left []string, err error) {
	var list metav1.PartialObjectMetadataList
	gvk, err := apiutil.GVKForObject(k.NewList(), w.client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("kind of %s works: %w", k.Name, err)
	}
	list.SetGroupVersionKind(gvk)
	for {
		if err := w.apiReader.List(ctx, &list, client.InNamespace(cluster), client.Limit(releasePage), client.Continue(list.Continue)); err != nil {
			return left, fmt.Errorf("list %s works: %w", k.Name, err)
		}
		for i := range list.Items {
			work := &list.Items[i]
			if !controllerutil.ContainsFinalizer(work, k.Finalizer) {
				continue
			}
			if err := w.removeFinalizer(ctx, k, work); err != nil {
				return left, fmt.Errorf("release %s work %s: %w", k.Name, work.Name, err)
			}
			left = append(left, k.Name+"/"+work.Name)
		}
		if list.Continue == "" {
			return left, nil
		}
	}
}
