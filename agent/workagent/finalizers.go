// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
)

// handleWork handles a work from the watch. The engine receives it once it has our
// finalizer: deleted without, it would be gone while its objects stay.
func (h *hub) handleWork(k *kind, w workconvert.Work) error {
	o := w.Object()
	key := k.key(o.GetName())
	if h.store.update(key, w) {
		h.enqueuePending(key)
	}
	leaving, held := o.GetDeletionTimestamp() != nil, slices.Contains(o.GetFinalizers(), k.Finalizer)
	switch {
	case k.ValidateName(key.Name) != nil:
		h.reportInvalidName(k, w, held)
		return nil //nolint:nilerr // the work's status says it
	case held:
		return h.store.publish(key, w)
	case leaving:
		return h.store.publishDeletion(key, w)
	default:
		h.finalizers.Add(key)
		return nil
	}
}

// handleDeleted forgets a work that is no more.
func (h *hub) handleDeleted(key wire.WorkKey, w workconvert.Work) error {
	h.deleteState(key)
	return h.store.handleDeleted(key, w)
}

// deleteState drops what is kept for a work besides.
func (h *hub) deleteState(key wire.WorkKey) {
	h.reports.Limiter.Forget(key)
	h.reports.Take(key)
}

// pruneReports drops the reports on works of a kind that are not among names.
func (h *hub) pruneReports(k *kind, names map[string]struct{}) {
	h.reports.DeleteFunc(func(key wire.WorkKey) bool {
		_, ok := names[key.Name]
		return !ok && key.Dialect == k.Name
	})
}

// addFinalizer puts our finalizer on a work. The watch brings it back, for the engine.
func (h *hub) addFinalizer(ctx context.Context, key wire.WorkKey) {
	err := h.patchFinalizers(ctx, key, func(o client.Object, finalizer string) bool {
		return o.GetDeletionTimestamp() == nil && controllerutil.AddFinalizer(o, finalizer)
	})
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
		h.finalizers.Forget(key)
		return
	}
	h.log.V(1).Info("finalizer is written again", "work", key.String(), "err", err.Error())
	h.finalizers.AddRateLimited(key)
}

// removeFinalizer takes our finalizer off a work.
func (h *hub) removeFinalizer(ctx context.Context, key wire.WorkKey) error {
	return h.patchFinalizers(ctx, key, controllerutil.RemoveFinalizer)
}

// patchFinalizers writes the finalizers of a work if change changes them. After a conflict it
// reads the work again.
func (h *hub) patchFinalizers(ctx context.Context, key wire.WorkKey, change func(client.Object, string) bool) error {
	k, ok := h.kind(key)
	if !ok {
		return nil
	}
	err := h.patchStoredFinalizers(ctx, k, key, change)
	if !apierrors.IsConflict(err) {
		return err
	}
	if err := h.get(ctx, k, key.Name); err != nil {
		return err
	}
	return h.patchStoredFinalizers(ctx, k, key, change)
}

func (h *hub) patchStoredFinalizers(ctx context.Context, k *kind, key wire.WorkKey, change func(client.Object, string) bool) error {
	w, ok := h.store.get(key)
	if !ok {
		return nil
	}
	o := w.WithoutSpec().Object() // a copy, but for its lists
	o.SetFinalizers(slices.Clone(o.GetFinalizers()))
	if !change(o, k.Finalizer) {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": o.GetFinalizers(),
	}})
	if err != nil {
		return fmt.Errorf("encode finalizers: %w", err)
	}
	return h.patch(ctx, k, key.Name, body)
}

// reportInvalidName is for a work whose anchor can have no name: nothing of it is ever
// in the spoke, and nothing keeps it.
func (h *hub) reportInvalidName(k *kind, w workconvert.Work, held bool) {
	o := w.Object()
	key := k.key(o.GetName())
	if o.GetDeletionTimestamp() != nil {
		if held {
			h.reports.Enqueue(key, statuswriter.Report{UID: o.GetUID(), Status: wire.WorkStatus{Finalized: true}})
		}
		return
	}
	h.reports.Enqueue(key, statuswriter.Report{UID: o.GetUID(), Status: wire.WorkStatus{
		ObservedGeneration: o.GetGeneration(), Conditions: []metav1.Condition{k.FailedCondition(o, k.ValidateName(o.GetName()))},
	}})
}
