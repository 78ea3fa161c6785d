// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/internal/workconvert"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const conditionApplied = workv1.WorkApplied

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
		h.take(key)
		return nil
	}
	h.enqueue(key, statuswriter.Report{UID: types.UID(r.UID), Status: status, Since: r.Since})
	return nil
}

// enqueuePending has a report written that came before its work was seen: the engine
// remembers works of the time before.
func (h *hub) enqueuePending(key wire.WorkKey) {
	h.mu.Lock()
	_, waits := h.pending[key]
	h.mu.Unlock()
	if waits {
		h.reports.Add(key)
	}
}

// Delete takes back what was to be written of a work.
func (h *hub) Delete(key string) {
	if parsed, err := wire.ParseWorkKey(key); err == nil {
		h.take(parsed)
	}
}

// Complete has nothing to do: what the engine does not report of stays.
func (h *hub) Complete() {}

func (h *hub) enqueue(key wire.WorkKey, r statuswriter.Report) {
	h.mu.Lock()
	h.pending.Put(key, r)
	h.mu.Unlock()
	h.reports.Add(key)
}

// take returns the latest report and forgets it.
func (h *hub) take(key wire.WorkKey) (statuswriter.Report, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending.Take(key)
}

// giveBack keeps a report that could not be written, unless there is a later one.
func (h *hub) giveBack(key wire.WorkKey, r statuswriter.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending.GiveBack(key, r)
}

// writeReport writes the latest report of a work. What comes meanwhile replaces one
// that waits.
func (h *hub) writeReport(ctx context.Context, key wire.WorkKey) {
	if _, seen := h.store.get(key); !seen {
		return // it waits
	}
	if wait := h.statusPacer.Delay(key); wait > 0 {
		h.reports.AddAfter(key, wait)
		return
	}
	r, ok := h.take(key)
	if !ok {
		return
	}
	err := h.writeReduced(ctx, key, r)
	switch {
	case err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil:
		h.reports.Forget(key)
	default:
		h.giveBack(key, r)
		h.reports.AddRateLimited(key)
		h.metrics.CountWrite(statuswriter.ResultError)
		h.log.V(1).Info("status is written again", "work", key.String(), "err", err.Error())
	}
}

// writeReduced brings a report into its work, and of one that the API server refuses what it
// takes. One of which it takes nothing is dropped: the next report may be better.
func (h *hub) writeReduced(ctx context.Context, key wire.WorkKey, r statuswriter.Report) error {
	k, ok := h.kind(key)
	if !ok {
		return nil
	}
	for {
		err := h.writeOnConflictAgain(ctx, k, key, r)
		refused := statuswriter.IsRefused(err)
		if refused || apierrors.IsForbidden(err) {
			h.log.Error(err, "status is refused", "work", key.String())
		}
		if !refused || r.Status.Finalized {
			return err
		}
		h.metrics.CountWrite(statuswriter.ResultRefused)
		rest, ok := r.Reduce(err)
		if !ok {
			return nil
		}
		r = rest
	}
}

// writeOnConflictAgain brings a report into its work: as it is on the board first, and as the API
// server has it when that turns out to be old.
func (h *hub) writeOnConflictAgain(ctx context.Context, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	err := h.writeStatus(ctx, k, key, r)
	if !apierrors.IsConflict(err) {
		return err
	}
	h.metrics.CountWrite(statuswriter.ResultConflict)
	if err := h.get(ctx, k, key.Name); err != nil {
		return err
	}
	return h.writeStatus(ctx, k, key, r)
}

func (h *hub) writeStatus(ctx context.Context, k *kind, key wire.WorkKey, r statuswriter.Report) error {
	before, ok := h.store.get(key)
	if !ok || before.object().GetUID() != r.UID {
		return nil // of an earlier work of that name
	}
	if r.Status.Finalized {
		if before.object().GetDeletionTimestamp() == nil {
			return nil
		}
		return h.removeFinalizer(ctx, key)
	}
	if r.Status.ObservedGeneration < observedGeneration(before) {
		return nil // overtaken
	}
	if r.OmitReason != "" {
		r.Status.Manifests = nil
	}
	after := before.withoutSpec() // a copy whose status may be replaced
	after.merge(r.Status, metav1.Now())
	if equality.Semantic.DeepEqual(before.status(), after.status()) {
		h.metrics.CountWrite(statuswriter.ResultUnchanged)
		return nil
	}
	body, err := newStatusPatch(before, after)
	if err != nil {
		return err
	}
	h.statusPacer.Spend(key, h.store.specSize(key)+len(body))
	if err := h.patch(ctx, k, key.Name, body, "status"); err != nil {
		return err
	}
	h.metrics.ObserveWritten(r)
	return nil
}

// observedGeneration is the highest generation that the status of a work speaks of.
func observedGeneration(w hubWork) int64 {
	switch w := w.(type) {
	case *manifestWork:
		return workconvert.ObservedGeneration(w.Status.Conditions)
	case *multiclusterWork:
		return workconvert.ObservedGeneration(w.Status.Conditions)
	default:
		return 0
	}
}

// newStatusPatch is the merge patch from one status to another, for the work as it was
// read and no other. Numbers stay as they are written: as float64 an integer of
// feedback would be another, or none that the API server takes.
func newStatusPatch(before, after hubWork) ([]byte, error) {
	old, err := json.Marshal(map[string]any{"status": before.status()})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	o := before.object()
	next, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}, "status": after.status(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(old, next)
	if err != nil {
		return nil, fmt.Errorf("compare statuses: %w", err)
	}
	return patch, nil
}
