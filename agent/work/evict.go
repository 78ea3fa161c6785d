// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"time"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// evict removes a work that the hub does not know, once the grace period is
// over: a hub that was restored, or lost a record, has that long to ask for it.
func (e *Engine) evict(ctx context.Context, w *work) (time.Duration, error) {
	if w.anchor != nil && !e.ownsAnchorName(w) {
		e.forgetAnchor(w)
	}
	if w.anchor == nil {
		e.deleteState(w)
		return 0, nil
	}
	if e.cfg.EvictionGrace >= noEviction && !w.anchor.IsDeleting {
		return 0, e.cancelEviction(ctx, w)
	}
	since := w.getUnknownSince()
	if since.IsZero() {
		return 0, nil // the hub has not yet said what it knows
	}
	if err := e.recordEviction(ctx, w, since); err != nil {
		return 0, err
	}
	left := e.cfg.EvictionGrace - time.Since(since)
	// An anchor that is being deleted is what is left of a deletion.
	if left > 0 && !w.anchor.IsDeleting {
		return left, nil
	}
	if err := e.deleteAll(ctx, w); err != nil {
		return 0, err
	}
	if w.anchor == nil {
		e.deleteState(w)
	}
	return 0, nil
}

// ownsAnchorName tells whether the anchor that a work holds is still known as that work's. One
// that was nobody's may not be: a work whose hub went back to an earlier hash has taken
// it over, and it must not be evicted.
func (e *Engine) ownsAnchorName(w *work) bool {
	name := w.anchorName()
	e.mu.Lock()
	defer e.mu.Unlock()
	return w.key.Namespace != orphanNamespace || e.anchors[w.policy.Dialect+"/"+name] == w
}

// forgetAnchor leaves an anchor, and what it lists, to the work that has taken it over.
func (e *Engine) forgetAnchor(w *work) {
	for id := range w.anchor.Objects {
		e.requeue(e.inventory.ReleaseClaim(id, w.key.String()))
	}
	w.anchor = nil
}

// noEviction, or more, as the grace period means that nothing is evicted.
const noEviction = 100 * 365 * 24 * time.Hour

// recordEviction records in an AppliedManifestWork since when its work is missed, and that it
// is ours to take down.
func (e *Engine) recordEviction(ctx context.Context, w *work, since time.Time) error {
	a := w.anchor
	if w.policy.Dialect != wire.DialectManifestWork || a.IsDeleting || a.UID == "" {
		return nil
	}
	if a.LacksFinalizer {
		if err := e.store(w.policy).SetFinalizer(ctx, w.recordKey(), a); err != nil {
			return w.ignoreLostAnchor(err)
		}
	}
	if !a.EvictionStart.IsZero() {
		return nil
	}
	return w.ignoreLostAnchor(e.store(w.policy).StartEviction(ctx, w.recordKey(), a, since))
}

// ignoreLostAnchor forgives that an anchor is gone: then there is nothing to record in it.
func (w *work) ignoreLostAnchor(err error) error {
	if errors.Is(err, record.ErrLost) {
		w.anchorChanged.Store(true)
		return nil
	}
	return err
}

// cancelEviction records that the hub knows a work again, or that nothing is evicted any
// more.
func (e *Engine) cancelEviction(ctx context.Context, w *work) error {
	return w.ignoreLostAnchor(e.store(w.policy).CancelEviction(ctx, w.recordKey(), w.anchor))
}

// deleteState forgets a work that has nothing left here and is not wanted.
func (e *Engine) deleteState(w *work) {
	key := w.key.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	// It may have been given an anchor since, that of an old hub hash.
	if w.currentSpec() != nil || w.anchor != nil {
		return
	}
	e.specs.Delete(key)
	delete(e.works, key)
	e.records.Remove(key)
	if name := w.policy.Dialect + "/" + w.anchorName(); e.anchors[name] == w {
		delete(e.anchors, name)
	}
	e.stopWaitingForKinds(key)
	e.inventory.TakeFirstEvent(key)
	e.reporter.Delete(key)
}

// markUnknown records that the hub does not know the work.
func (w *work) markUnknown(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spec = nil
	if w.unknownSince.IsZero() {
		w.unknownSince = now
	}
}

// setUnknownSince is what an anchor says of a time before us; the hub may know better by now.
func (w *work) setUnknownSince(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spec == nil {
		w.unknownSince = at
	}
}

func (w *work) getUnknownSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unknownSince
}

// isUnconfirmed: nothing, or only our own copy, speaks for the work.
func (w *work) isUnconfirmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec == nil || w.spec.IsCached
}
