// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"time"
)

// evict removes a work that the hub does not know, once the grace period is
// over: a hub that was restored, or lost a record, has that long to ask for it.
func (e *Engine) evict(ctx context.Context, w *work) (time.Duration, error) {
	if w.anchor == nil {
		e.drop(w)
		return 0, nil
	}
	since := w.orphanedSince()
	if since.IsZero() {
		return 0, nil // the hub has not yet said what it knows
	}
	left := e.cfg.EvictionGrace - time.Since(since)
	// An anchor that is being deleted is what is left of a deletion.
	if left > 0 && !w.anchor.deleting {
		return left, nil
	}
	if err := e.dismantle(ctx, w); err != nil {
		return 0, err
	}
	if w.anchor == nil {
		e.drop(w)
	}
	return 0, nil
}

// drop forgets a work that has nothing left here and is not wanted.
func (e *Engine) drop(w *work) {
	key := w.key.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.wanted() != nil {
		return
	}
	e.copy.forget(key)
	delete(e.works, key)
	e.backlog.forget(key)
	delete(e.anchors, w.policy.Dialect+"/"+w.anchorName())
	e.unwait(key)
	e.source.Delete(key)
}

// orphan records that the hub does not know the work.
func (w *work) orphan(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = nil
	if w.orphaned.IsZero() {
		w.orphaned = now
	}
}

func (w *work) orphanedSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.orphaned
}

// unconfirmed: nothing, or only our own copy, speaks for the work.
func (w *work) unconfirmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want == nil || w.want.copied
}
