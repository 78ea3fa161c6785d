// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

var _ work.Reporter = (*hub)(nil)

// Put takes a status from the engine. Of one that is too large it returns
// resource.ErrTooLarge: the engine then reports less.
func (h *hub) Put(r resource.Resource) error {
	key, err := wire.ParseWorkKey(r.Key)
	if err != nil {
		return err
	}
	if size := len(r.Body) + h.store.specSize(key); size > statuswriter.MaxObjectBytes {
		return fmt.Errorf("work %s of %d bytes with its status: %w", key, size, resource.ErrTooLarge)
	}
	status, err := wire.DecodeWorkStatus(r.Body)
	if err != nil {
		return err
	}
	if status.Finalized && !h.store.markFinalized(key, types.UID(r.UID)) {
		h.reports.Take(key)
		return nil
	}
	h.reports.Enqueue(key, statuswriter.Report{UID: types.UID(r.UID), Status: status, Since: r.Since})
	return nil
}

// enqueuePending has a report written that came before its work was seen: the engine
// remembers works of the time before.
func (h *hub) enqueuePending(key wire.WorkKey) {
	if _, ok := h.reports.Pending(key); ok {
		h.reports.Add(key)
	}
}

// Delete takes back what was to be written of a work.
func (h *hub) Delete(key string) {
	if parsed, err := wire.ParseWorkKey(key); err == nil {
		h.reports.Take(parsed)
	}
}

// Complete has nothing to do: what the engine does not report of stays.
func (h *hub) Complete() {}

// writeReport writes the latest report on a work. What comes meanwhile replaces one
// that waits.
func (h *hub) writeReport(ctx context.Context, key wire.WorkKey) {
	k, ok := h.kind(key)
	if _, isStored := h.store.get(key); !ok || !isStored {
		return // the report waits for its work
	}
	if delay := h.reports.Limiter.Delay(key); delay > 0 {
		h.reports.AddAfter(key, delay)
		return
	}
	r, ok := h.reports.Take(key)
	if !ok {
		return
	}
	err := h.reports.Write(r, func(r statuswriter.Report) error { return h.writeStatusOrRefresh(ctx, k, key, r) }, func(err error) {
		h.log.Error(err, "status is refused", "work", key.String())
	})
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
		h.reports.Forget(key)
		return
	}
	h.reports.RetryReport(key, r, err)
}

// writeStatusOrRefresh brings a report into its work: as it is stored first, and as the API
// server has it when that turns out to be old.
func (h *hub) writeStatusOrRefresh(ctx context.Context, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	err := h.writeStatus(ctx, k, key, r)
	if !apierrors.IsConflict(err) {
		return err
	}
	h.reports.Metrics.CountWrite(statuswriter.ResultConflict)
	if err := h.get(ctx, k, key.Name); err != nil {
		return err
	}
	return h.writeStatus(ctx, k, key, r)
}

func (h *hub) writeStatus(ctx context.Context, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	before, ok := h.store.get(key)
	if !ok || before.Object().GetUID() != r.UID {
		return nil // of an earlier work of that name
	}
	if r.Status.Finalized {
		if before.Object().GetDeletionTimestamp() == nil {
			return nil
		}
		return h.removeFinalizer(ctx, key)
	}
	if r.Status.ObservedGeneration < workconvert.ObservedGeneration(*before.Conditions()) {
		return nil // overtaken
	}
	if r.OmitReason != "" {
		r.Status.Manifests = nil
	}
	after := before.WithoutSpec() // a copy whose status may be replaced
	after.Merge(r.Status, metav1.Now())
	if equality.Semantic.DeepEqual(before.Status(), after.Status()) {
		h.reports.Metrics.CountWrite(statuswriter.ResultUnchanged)
		return nil
	}
	body, err := statuswriter.NewStatusPatch(before.Object(), before.Status(), after.Status())
	if err != nil {
		return err
	}
	h.reports.Limiter.Spend(key, h.store.specSize(key)+len(body))
	if err := h.patch(ctx, k, key.Name, body, "status"); err != nil {
		return err
	}
	h.reports.Metrics.ObserveWritten(r)
	return nil
}
