// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// evict removes a work that the hub does not know, once the grace period is
// over: a hub that was restored, or lost a record, has that long to ask for it.
func (e *Engine) evict(ctx context.Context, w *work) (time.Duration, error) {
	if w.anchor != nil && !e.isNamed(w) {
		e.forgetAnchor(w)
	}
	if w.anchor == nil {
		e.drop(w)
		return 0, nil
	}
	if e.cfg.EvictionGrace >= evictionNever && !w.anchor.deleting {
		return 0, e.cancelEviction(ctx, w)
	}
	since := w.orphanedSince()
	if since.IsZero() {
		return 0, nil // the hub has not yet said what it knows
	}
	if err := e.miss(ctx, w, since); err != nil {
		return 0, err
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

// isNamed tells whether the anchor that a work holds is still known as that work's. One
// that was nobody's may not be: a work whose hub went back to an earlier hash has taken
// it over, and it must not be evicted.
func (e *Engine) isNamed(w *work) bool {
	name := w.anchorName()
	e.mu.Lock()
	defer e.mu.Unlock()
	return w.key.Namespace != strangeNamespace || e.anchors[w.policy.Dialect+"/"+name] == w
}

// forgetAnchor leaves an anchor, and what it lists, to the work that has taken it over.
func (e *Engine) forgetAnchor(w *work) {
	for id := range w.anchor.tracked {
		e.table.release(id, w.key.String())
	}
	w.anchor = nil
}

// evictionNever, or more, as the grace period means that nothing is evicted.
const evictionNever = 100 * 365 * 24 * time.Hour

// miss records in an AppliedManifestWork since when its work is missed, and that it
// is ours to take down.
func (e *Engine) miss(ctx context.Context, w *work, since time.Time) error {
	a := w.anchor
	if w.policy.Dialect != wire.DialectManifestWork || a.deleting || a.uid == "" {
		return nil
	}
	if a.loose {
		patch := map[string]any{"metadata": map[string]any{"uid": string(a.uid), "finalizers": []string{w.policy.Anchor.Finalizer}}}
		if err := e.patchAnchor(ctx, w, patch); err != nil {
			return w.lost(err)
		}
		a.loose = false
	}
	if !a.evicting.IsZero() {
		return nil
	}
	if err := e.setEviction(ctx, w, metav1.NewTime(since)); err != nil {
		return w.lost(err)
	}
	a.evicting = since
	return nil
}

// lost forgives that an anchor is gone: then there is nothing to record in it.
func (w *work) lost(err error) error {
	if errors.Is(err, errAnchorLost) {
		w.shaken.Store(true)
		return nil
	}
	return err
}

// cancelEviction clears the evictionStartTime of an AppliedManifestWork: the hub
// knows its work again, or nothing is evicted any more.
func (e *Engine) cancelEviction(ctx context.Context, w *work) error {
	if a := w.anchor; a.uid != "" && !a.evicting.IsZero() {
		if err := e.setEviction(ctx, w, nil); err != nil {
			return w.lost(err)
		}
		a.evicting = time.Time{}
	}
	return nil
}

func (e *Engine) setEviction(ctx context.Context, w *work, at any) error {
	patch := map[string]any{"metadata": map[string]any{"uid": string(w.anchor.uid)}, "status": map[string]any{"evictionStartTime": at}}
	return e.patchAnchor(ctx, w, patch, "status")
}

// drop forgets a work that has nothing left here and is not wanted.
func (e *Engine) drop(w *work) {
	key := w.key.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	// It may have been given an anchor since, that of an old hub hash.
	if w.wanted() != nil || w.anchor != nil {
		return
	}
	e.copy.forget(key)
	delete(e.works, key)
	e.backlog.forget(key)
	if name := w.policy.Dialect + "/" + w.anchorName(); e.anchors[name] == w {
		delete(e.anchors, name)
	}
	e.unwait(key)
	e.table.news(key)
	e.reporter.Delete(key)
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

// missedSince is what an anchor says of a time before us; the hub may know better by now.
func (w *work) missedSince(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want == nil {
		w.orphaned = at
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
