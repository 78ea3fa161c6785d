// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// restore reads what is left of the time before: anchors, then our own copy of
// what was wanted. Without the anchors nothing may be touched.
func (e *Engine) restore(ctx context.Context) {
	retry := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1, Steps: math.MaxInt32, Cap: 15 * time.Second}
	err := retry.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) {
		err := e.restoreAnchors(ctx)
		if err != nil {
			e.log.Error(err, "cannot read anchors")
		}
		return err == nil, nil
	})
	if err != nil {
		return // ctx has ended
	}
	kept, err := e.specs.Load(ctx)
	if err != nil {
		e.log.Error(err, "cannot read the copy of works; waiting for the hub")
	}
	for _, r := range kept {
		e.restoreWork(r)
		e.restoreOwnership(r.Key)
	}
	e.mu.Lock()
	early := e.isSynced
	e.mu.Unlock()
	if early {
		e.handleSynced() // the hub was faster than we were to remember
	}
}

func (e *Engine) restoreAnchors(ctx context.Context) error {
	for _, p := range e.policies {
		o := metav1.ListOptions{Limit: pageSize}
		if p.Anchor.MarkField() == "labels" {
			o.LabelSelector = record.HubLabel + "=" + e.cfg.HubID
		}
		for {
			page, err := e.store(p).Client.List(ctx, o)
			if err != nil {
				return fmt.Errorf("list %s: %w", p.Anchor.Resource.Resource, err)
			}
			for i := range page.Items {
				if err := e.restoreAnchor(p, &page.Items[i]); err != nil {
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

func (e *Engine) restoreAnchor(p Policy, u *unstructured.Unstructured) error {
	if !e.store(p).IsOurs(u, false) {
		return nil
	}
	key, a, err := record.Decode(p.Anchor, u)
	if err != nil {
		return err
	}
	e.bindAnchor(p, e.anchorWorkKey(p, key, u.GetName()), u.GetName(), a)
	return nil
}

// anchorWorkKey is the work of an anchor. One whose hub is another, or whose name is
// not what the hub's works have, stands for a work that is no more.
func (e *Engine) anchorWorkKey(p Policy, key wire.WorkKey, name string) wire.WorkKey {
	if p.Dialect != wire.DialectManifestWork {
		return key
	}
	key.Namespace = e.cfg.Cluster
	e.mu.Lock()
	defer e.mu.Unlock()
	w, known := e.works[key.String()]
	hash, ofWork := strings.CutSuffix(name, "-"+key.Name)
	if key.Name == "" || !ofWork || e.hubHash != "" && hash != e.hubHash || known && w.anchor != nil && w.anchorName() != name {
		return orphanKey(name)
	}
	return key
}

// orphanNamespace is that of the works of anchors that are nobody's: no cluster has
// a name like that.
const orphanNamespace = "~"

// orphanKey is the key of what an anchor stands for that is nobody's.
func orphanKey(anchor string) wire.WorkKey {
	return wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: orphanNamespace, Name: anchor}
}

// bindAnchor connects an anchor to its work, and the work to its objects: they are
// watched, and known to be shared, before anything is applied.
func (e *Engine) bindAnchor(p Policy, key wire.WorkKey, name string, a *record.Anchor) {
	e.attachAnchor(e.bindAnchorName(p, key, name), a)
}

// bindAnchorName names the anchor of a work, which is made if need be.
func (e *Engine) bindAnchorName(p Policy, key wire.WorkKey, name string) *work {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.ensureWork(p, key)
	e.setAnchorName(w, name)
	return w
}

// attachAnchor gives a work the anchor that was found for it; its executor does not run.
func (e *Engine) attachAnchor(w *work, a *record.Anchor) {
	w.anchor = a
	if !a.EvictionStart.IsZero() {
		w.setUnknownSince(a.EvictionStart)
	}
	if a.IsDeleting {
		return
	}
	for _, t := range a.Objects {
		e.inventory.AddClaim(t.Target, w.key.String(), a.UID)
		if w.key.Namespace == orphanNamespace {
			e.inventory.DropOwnership(t.Target, w.key.String(), a.UID) // the list does not say what was orphaned
		}
		if t.UID != "" && !t.IsAdopted && w.policy.KeepsExisting {
			e.inventory.MarkCreated(t.ObjectID, t.UID)
		}
	}
	e.loadSuperseded(w)
}

// restoreOwnership ends a work's ownership of what its copy orphans or only reads: the
// anchor's list does not say so, and the apply of another work would write the
// reference to the anchor back.
func (e *Engine) restoreOwnership(key string) {
	w := e.lookup(key)
	if w == nil || w.anchor == nil {
		return
	}
	d := w.currentSpec()
	if d == nil {
		return
	}
	for _, t := range w.anchor.Objects {
		if !d.OwnsObject(t.Identifier()) {
			e.inventory.DropOwnership(t.Target, key, w.anchor.UID)
		}
	}
}

// setAnchorName says what the anchor of a work is called; e.mu is held. A work that held
// the anchor before is queued, to forget it.
func (e *Engine) setAnchorName(w *work, name string) {
	w.mu.Lock()
	w.boundAnchor = name
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
func (e *Engine) releaseAnchor(w *work, d *plan.Spec) {
	if w.policy.Dialect != wire.DialectManifestWork {
		return
	}
	name := d.HubHash + "-" + w.key.Name
	before := w.anchorName()
	if before == name {
		return
	}
	// Nobody sees the key of the old anchor before it has the anchor.
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := w.anchor; old != nil {
		other := e.ensureWork(w.policy, orphanKey(before))
		e.setAnchorName(other, before)
		for id := range old.Objects {
			e.inventory.TransferClaim(id, w.key.String(), other.key.String())
		}
		e.attachAnchor(other, old)
		other.markUnknown(time.Now())
		e.queue.Add(other.key.String())
		w.anchor = nil
	}
	e.setAnchorName(w, name)
}
