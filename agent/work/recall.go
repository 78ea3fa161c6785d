// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
)

// recall reads what is left of the time before: anchors, then our own copy of
// what was wanted. Without the anchors nothing may be touched.
func (e *Engine) recall(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := e.recallAnchors(ctx)
		if err == nil {
			break
		}
		e.log.Error(err, "cannot read anchors")
		sleep(ctx, backoff(failures, firstPause, longestPause))
	}
	if ctx.Err() != nil {
		return
	}
	kept, err := e.copy.load(ctx)
	if err != nil {
		e.log.Error(err, "cannot read the copy of works; waiting for the hub")
	}
	for _, r := range kept {
		e.remember(r)
		e.recallOrphans(r.Key)
	}
	e.mu.Lock()
	early := e.synced
	e.mu.Unlock()
	if early {
		e.complete() // the hub was faster than we were to remember
	}
}

func (e *Engine) recallAnchors(ctx context.Context) error {
	for _, p := range e.policies {
		o := metav1.ListOptions{Limit: pageSize}
		if p.markedBy() == "labels" {
			o.LabelSelector = HubLabel + "=" + e.cfg.HubID
		}
		for {
			page, err := e.spoke.anchors(p).List(ctx, o)
			if err != nil {
				return fmt.Errorf("list %s: %w", p.Anchor.Resource.Resource, err)
			}
			for i := range page.Items {
				if err := e.recallAnchor(p, &page.Items[i]); err != nil {
					return err
				}
			}
			if o.Continue = page.GetContinue(); o.Continue == "" {
				break
			}
		}
	}
	return nil
}

func (e *Engine) recallAnchor(p Policy, u *unstructured.Unstructured) error {
	if !p.Anchor.form.ours(e, u, false) {
		return nil
	}
	key, a, err := readAnchor(p, u)
	if err != nil {
		return err
	}
	e.rebind(p, e.standsFor(p, key, u.GetName()), u.GetName(), a)
	return nil
}

// standsFor is the work of an anchor. One whose hub is another, or whose name is
// not what the hub's works have, stands for a work that is no more.
func (e *Engine) standsFor(p Policy, key wire.WorkKey, name string) wire.WorkKey {
	if p.Dialect != wire.DialectManifestWork {
		return key
	}
	key.Namespace = e.cfg.Cluster
	e.mu.Lock()
	defer e.mu.Unlock()
	w, known := e.works[key.String()]
	hash, ofWork := strings.CutSuffix(name, "-"+key.Name)
	if key.Name == "" || !ofWork || e.hash != "" && hash != e.hash || known && w.anchor != nil && w.anchorName() != name {
		return strange(name)
	}
	return key
}

// strangeNamespace is that of the works of anchors that are nobody's: no cluster has
// a name like that.
const strangeNamespace = "~"

// strange is the key of what an anchor stands for that is nobody's.
func strange(anchor string) wire.WorkKey {
	return wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: strangeNamespace, Name: anchor}
}

// rebind connects an anchor to its work, and the work to its objects: they are
// watched, and known to be shared, before anything is applied.
func (e *Engine) rebind(p Policy, key wire.WorkKey, name string, a *anchor) {
	e.hold(e.bind(p, key, name), a)
}

// bind names the anchor of a work, which is made if need be.
func (e *Engine) bind(p Policy, key wire.WorkKey, name string) *work {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.workFor(p, key)
	e.nameAnchor(w, name)
	return w
}

// hold gives a work the anchor that was found for it; its executor does not run.
func (e *Engine) hold(w *work, a *anchor) {
	w.anchor = a
	if !a.evicting.IsZero() {
		w.missedSince(a.evicting)
	}
	if a.deleting {
		return
	}
	for _, t := range a.tracked {
		e.table.claim(t.target, w.key.String(), a.uid)
		if w.key.Namespace == strangeNamespace {
			e.table.waive(t.target, w.key.String(), a.uid) // the list does not say what was orphaned
		}
		if t.uid != "" && !t.adopted && w.policy.KeepsFound {
			e.table.vouch(t.objectID, t.uid)
		}
	}
	e.recallYields(w)
}

// recallOrphans ends a work's ownership of what its copy orphans or only reads: the
// anchor's list does not say so, and the apply of another work would write the
// reference to the anchor back.
func (e *Engine) recallOrphans(key string) {
	w := e.lookup(key)
	if w == nil || w.anchor == nil {
		return
	}
	d := w.wanted()
	if d == nil {
		return
	}
	for _, t := range w.anchor.tracked {
		if !d.owns(t.identifier()) {
			e.table.waive(t.target, key, w.anchor.uid)
		}
	}
}

// nameAnchor says what the anchor of a work is called; e.mu is held. A work that held
// the anchor before is queued, to forget it.
func (e *Engine) nameAnchor(w *work, name string) {
	w.mu.Lock()
	w.anchored = name
	w.mu.Unlock()
	name = w.policy.Dialect + "/" + name
	if before := e.anchors[name]; before != nil && before != w {
		e.queue.Add(before.key.String())
	}
	e.anchors[name] = w
}

// releaseAnchor takes from a work the anchor that it had under another hash of its hub:
// the anchor stands for no work then, and is evicted. Until that it keeps what it owns,
// and gains nothing: an object that the work orphaned under the old hash would be
// deleted with the anchor.
func (e *Engine) releaseAnchor(w *work, d *desired) {
	if w.policy.Dialect != wire.DialectManifestWork {
		return
	}
	name := d.hubHash + "-" + w.key.Name
	before := w.anchorName()
	if before == name {
		return
	}
	// Nobody sees the key of the old anchor before it has the anchor.
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := w.anchor; old != nil {
		other := e.workFor(w.policy, strange(before))
		e.nameAnchor(other, before)
		for id := range old.tracked {
			e.table.transfer(id, w.key.String(), other.key.String())
		}
		e.hold(other, old)
		other.orphan(time.Now())
		e.queue.Add(other.key.String())
		w.anchor = nil
	}
	e.nameAnchor(w, name)
}
