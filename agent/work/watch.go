// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// startWatch keeps a sink up to date with a scope until the engine or the returned stop
// ends it. stop does not wait: it is called with locks held.
func (e *Engine) startWatch(s inventory.Scope, feed watcher.ListWatch, to watcher.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(e.runCtx)
	log := e.log.WithValues("resource", s.String(), "namespace", s.Namespace)
	e.watches.Go(func() {
		defer cancel()
		(&watcher.Watcher{ListWatch: feed, Handler: to, IsDenied: isPermanentWatchError, Log: log}).Run(ctx)
	})
	return cancel
}

// isPermanentWatchError tells an answer that waiting will not change from a fault on the way.
func isPermanentWatchError(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// watchScope watches a scope of applied objects.
func (e *Engine) watchScope(s inventory.Scope) (stop func()) {
	return e.startWatch(s, e.spoke.newFeed(s), &inventory.Sink{Inventory: e.inventory, Requeue: e.requeue, Scope: s})
}

// watchAnchors watches the anchors, for somebody may delete one.
func (e *Engine) watchAnchors() {
	for _, p := range e.policies {
		s := inventory.Scope{GroupVersionResource: p.Anchor.Resource}
		e.startWatch(s, e.spoke.newMetadataFeed(s), &anchorSink{engine: e, dialect: p.Dialect})
	}
}

// anchorSink queues the works whose anchors are going or gone.
type anchorSink struct {
	engine  *Engine
	dialect string
	seen    map[string]struct{}
}

// HandleEvent implements watcher.Handler.
func (a *anchorSink) HandleEvent(obj metav1.Object, deleted bool) {
	if a.seen != nil && !deleted {
		a.seen[obj.GetName()] = struct{}{}
	}
	if deleted || obj.GetDeletionTimestamp() != nil {
		a.engine.requeueByAnchor(a.dialect + "/" + obj.GetName())
		return
	}
	if a.dialect == wire.DialectManifestWork && a.engine.isAdoptionCandidate(obj) {
		a.engine.queue.Add(newAnchorPrefix + obj.GetName())
	}
}

// StartSync implements watcher.Handler.
func (a *anchorSink) StartSync() { a.seen = map[string]struct{}{} }

// FinishSync looks at every anchor that was not there. One that was made since the
// version of the events is looked at in vain.
func (a *anchorSink) FinishSync(string) {
	for _, name := range a.engine.anchorNames(a.dialect) {
		if _, ok := a.seen[name]; !ok {
			a.engine.requeueByAnchor(a.dialect + "/" + name)
		}
	}
	a.seen = nil
}

// HandleDenied implements watcher.Handler.
func (a *anchorSink) HandleDenied(err error) {
	a.engine.log.Error(err, "cannot watch anchors", "dialect", a.dialect)
}

// newAnchorPrefix begins the keys of anchors that appeared and are not known.
const newAnchorPrefix = "anchor/"

// isAdoptionCandidate tells, by what its metadata says, whether an anchor that is not known
// has to be looked at: those of other agents change as often as their works do.
func (e *Engine) isAdoptionCandidate(obj metav1.Object) bool {
	mark := obj.GetAnnotations()[record.HubLabel]
	if mark != e.cfg.HubID && e.cfg.AgentID == "" && e.cfg.HubHash == "" {
		return false // only what bears our mark is ours
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.anchors[wire.DialectManifestWork+"/"+obj.GetName()]
	_, stranger := e.foreignAnchors[obj.GetUID()]
	return !known && !stranger
}

// maxForeignAnchors bounds the memory of whose anchors are not ours.
const maxForeignAnchors = 10_000

func (e *Engine) addForeignAnchor(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.foreignAnchors) >= maxForeignAnchors {
		clear(e.foreignAnchors)
	}
	e.foreignAnchors[uid] = struct{}{}
}

func (e *Engine) knowsAnchor(anchor string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.anchors[anchor]
	return ok
}

// adoptNewAnchor takes up an anchor that somebody else made in this agent's name. Its work is
// missed unless the hub knows it; then the work itself takes the anchor over.
func (e *Engine) adoptNewAnchor(ctx context.Context, name string) {
	p := e.policies[wire.DialectManifestWork]
	if e.knowsAnchor(p.Dialect + "/" + name) {
		return
	}
	u, err := e.store(p).Client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return // gone, or seen again with its next event
	}
	if !e.store(p).IsOurs(u, false) {
		e.addForeignAnchor(u.GetUID())
		return
	}
	key, a, err := record.Decode(p.Anchor, u)
	if err != nil {
		e.log.Error(err, "cannot read an anchor", "name", name)
		return
	}
	e.createAnchorWork(p, key.Name, name, a)
}

// createAnchorWork makes a work of an anchor that has none. One whose name is that of a work
// of this hub is left to that work, whose executor alone may touch it.
func (e *Engine) createAnchorWork(p Policy, of, name string, a *record.Anchor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := wire.WorkKey{Dialect: p.Dialect, Namespace: e.cfg.Cluster, Name: of}
	if of == "" || e.hubHash != "" && name != e.hubHash+"-"+of {
		key = orphanKey(name)
	}
	if e.works[key.String()] != nil || e.anchors[p.Dialect+"/"+name] != nil {
		return
	}
	w := e.ensureWork(p, key)
	e.setAnchorName(w, name)
	e.attachAnchor(w, a)
	if e.isSynced && a.EvictionStart.IsZero() {
		w.markUnknown(time.Now())
	}
	e.queue.Add(key.String())
}

func (e *Engine) requeueByAnchor(anchor string) {
	e.mu.Lock()
	w := e.anchors[anchor]
	e.mu.Unlock()
	if w == nil {
		return
	}
	w.anchorChanged.Store(true)
	e.queue.Add(w.key.String())
}

func (e *Engine) anchorNames(dialect string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, w := range e.works {
		if w.key.Dialect == dialect {
			out = append(out, w.anchorName())
		}
	}
	return out
}

// waitForKinds keeps the definitions watched for as long as any work names a kind that
// is not served, so that it goes on when the kind appears.
func (e *Engine) waitForKinds(w *work, steps []plan.Step) {
	key := w.key.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, works := range e.unservedKinds {
		delete(works, key)
	}
	for _, s := range steps {
		var unknown *manifest.UnknownKindError
		if !errors.As(s.Error, &unknown) {
			continue
		}
		group := unknown.Kind.Group
		if e.unservedKinds[group] == nil {
			e.unservedKinds[group] = map[string]struct{}{}
		}
		e.unservedKinds[group][key] = struct{}{}
	}
	e.updateDefinitionWatch()
}

// stopWaitingForKinds ends what await began; e.mu is held.
func (e *Engine) stopWaitingForKinds(key string) {
	for _, works := range e.unservedKinds {
		delete(works, key)
	}
	e.updateDefinitionWatch()
}

// updateDefinitionWatch starts or stops the watch of definitions; e.mu is held.
func (e *Engine) updateDefinitionWatch() {
	for group, works := range e.unservedKinds {
		if len(works) == 0 {
			delete(e.unservedKinds, group)
		}
	}
	switch {
	case len(e.unservedKinds) > 0 && e.stopDefinitions == nil:
		s := inventory.Scope{GroupVersionResource: definitionResource()}
		e.stopDefinitions = e.startWatch(s, e.spoke.newMetadataFeed(s), definitionSink{e})
	case len(e.unservedKinds) == 0 && e.stopDefinitions != nil:
		e.stopDefinitions()
		e.stopDefinitions = nil
	}
}

// definitionSink queues the works that wait for a group of which a definition
// appeared or changed; that it was established is one of those changes.
type definitionSink struct{ engine *Engine }

// HandleEvent implements watcher.Handler.
func (d definitionSink) HandleEvent(obj metav1.Object, deleted bool) {
	if deleted {
		return
	}
	e, group := d.engine, definitionGroup(obj.GetName())
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.unservedKinds[group]) == 0 {
		return
	}
	e.spoke.kinds.InvalidateGroup(group)
	for key := range e.unservedKinds[group] {
		e.queue.Add(key)
	}
}

// StartSync implements watcher.Handler.
func (definitionSink) StartSync() {}

// FinishSync implements watcher.Handler.
func (definitionSink) FinishSync(string) {}

// HandleDenied implements watcher.Handler.
func (d definitionSink) HandleDenied(err error) {
	d.engine.log.Error(err, "cannot watch definitions; unknown kinds are tried again at intervals")
}

// countByState tells how many works there are in each state.
func (e *Engine) countByState() map[string]int {
	e.mu.Lock()
	works := make([]*work, 0, len(e.works))
	for _, w := range e.works {
		works = append(works, w)
	}
	e.mu.Unlock()
	out := map[string]int{stateApplied: 0, stateFailed: 0, statePending: 0, stateDeleting: 0, stateSuspended: 0, stateOrphaned: 0}
	for _, w := range works {
		out[w.state()]++
	}
	return out
}
