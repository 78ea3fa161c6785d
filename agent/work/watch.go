// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// scope is what one watch covers.
type scope struct {
	schema.GroupVersionResource
	namespace string
	// complete asks for the content of kinds that are watched as metadata else.
	complete bool
}

func scopeOf(t target) scope { return scope{GroupVersionResource: t.gvr(), namespace: t.Namespace} }

func (s scope) id(obj metav1.Object) objectID {
	return objectID{Group: s.Group, Resource: s.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// follow keeps a sink up to date with a scope until the engine or the returned stop
// ends it. stop does not wait: it is called with locks held.
func (e *Engine) follow(s scope, feed watcher.Feed, to watcher.Sink) (stop func()) {
	ctx, cancel := context.WithCancel(e.lifetime)
	log := e.log.WithValues("resource", s.String(), "namespace", s.namespace)
	e.following.Go(func() {
		defer cancel()
		(&watcher.Follower{Feed: feed, Sink: to, Refusal: refusal, Log: log}).Run(ctx)
	})
	return cancel
}

// refusal tells an answer that waiting will not change from a fault on the way.
func refusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// followObjects watches a scope of applied objects.
func (e *Engine) followObjects(s scope) (stop func()) {
	return e.follow(s, e.spoke.feed(s), &objectSink{table: e.table, scope: s})
}

// objectSink feeds the table with what is in a scope.
type objectSink struct {
	table *table
	scope scope
	seen  map[objectID]struct{}
}

// Event implements watcher.Sink.
func (o *objectSink) Event(obj metav1.Object, deleted bool) {
	id := o.scope.id(obj)
	if !o.table.wants(id) {
		return // dropped before anything of it is kept
	}
	at := time.Now()
	if o.seen != nil {
		at = time.Time{} // of what is there when a watch begins nobody knows since when
	}
	if o.seen != nil && !deleted {
		o.seen[id] = struct{}{}
	}
	var readings []*reading
	if full, ok := obj.(*unstructured.Unstructured); ok && !deleted {
		readings = readAll(o.table.readers(id), full)
	}
	o.table.observe(id, sight(obj), deleted, at, readings...)
}

// Begin implements watcher.Sink.
func (o *objectSink) Begin() {
	o.table.expect(o.scope)
	o.seen = map[objectID]struct{}{}
}

// End implements watcher.Sink.
func (o *objectSink) End(version string) {
	o.table.resync(o.scope, o.seen, version)
	o.seen = nil
}

// Refused implements watcher.Sink.
func (o *objectSink) Refused(err error) { o.table.fail(o.scope, err) }

// followAnchors watches the anchors, for somebody may delete one.
func (e *Engine) followAnchors() {
	for _, p := range e.policies {
		s := scope{GroupVersionResource: p.Anchor.Resource}
		e.follow(s, e.spoke.metadataFeed(s), &anchorSink{engine: e, dialect: p.Dialect})
	}
}

// anchorSink queues the works whose anchors are going or gone.
type anchorSink struct {
	engine  *Engine
	dialect string
	seen    map[string]struct{}
}

// Event implements watcher.Sink.
func (a *anchorSink) Event(obj metav1.Object, deleted bool) {
	if a.seen != nil && !deleted {
		a.seen[obj.GetName()] = struct{}{}
	}
	if deleted || obj.GetDeletionTimestamp() != nil {
		a.engine.shake(a.dialect + "/" + obj.GetName())
		return
	}
	if a.dialect == wire.DialectManifestWork && a.engine.mayBeOurs(obj) {
		a.engine.queue.Add(meetPrefix + obj.GetName())
	}
}

// Begin implements watcher.Sink.
func (a *anchorSink) Begin() { a.seen = map[string]struct{}{} }

// End looks at every anchor that was not there. One that was made since the
// version of the events is looked at in vain.
func (a *anchorSink) End(string) {
	for _, name := range a.engine.anchorNames(a.dialect) {
		if _, ok := a.seen[name]; !ok {
			a.engine.shake(a.dialect + "/" + name)
		}
	}
	a.seen = nil
}

// Refused implements watcher.Sink.
func (a *anchorSink) Refused(err error) {
	a.engine.log.Error(err, "cannot watch anchors", "dialect", a.dialect)
}

// meetPrefix begins the keys of anchors that appeared and are not known.
const meetPrefix = "anchor/"

// mayBeOurs tells, by what its metadata says, whether an anchor that is not known
// has to be looked at: those of other agents change as often as their works do.
func (e *Engine) mayBeOurs(obj metav1.Object) bool {
	mark := obj.GetAnnotations()[HubLabel]
	if mark != e.cfg.HubID && e.cfg.AgentID == "" && e.cfg.HubHash == "" {
		return false // only what bears our mark is ours
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.anchors[wire.DialectManifestWork+"/"+obj.GetName()]
	_, stranger := e.strangers[obj.GetUID()]
	return !known && !stranger
}

// maxStrangers bounds the memory of whose anchors are not ours.
const maxStrangers = 10_000

func (e *Engine) isStranger(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.strangers) >= maxStrangers {
		clear(e.strangers)
	}
	e.strangers[uid] = struct{}{}
}

func (e *Engine) knowsAnchor(anchor string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.anchors[anchor]
	return ok
}

// meet takes up an anchor that somebody else made in this agent's name. Its work is
// missed unless the hub knows it; then the work itself takes the anchor over.
func (e *Engine) meet(ctx context.Context, name string) {
	p := e.policies[wire.DialectManifestWork]
	if e.knowsAnchor(p.Dialect + "/" + name) {
		return
	}
	u, err := e.spoke.anchors(p).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return // gone, or seen again with its next event
	}
	if !p.Anchor.form.ours(e, u, false) {
		e.isStranger(u.GetUID())
		return
	}
	key, a, err := readAnchor(p, u)
	if err != nil {
		e.log.Error(err, "cannot read an anchor", "name", name)
		return
	}
	e.takeUp(p, key.Name, name, a)
}

// takeUp makes a work of an anchor that has none. One whose name is that of a work
// of this hub is left to that work, whose executor alone may touch it.
func (e *Engine) takeUp(p Policy, of, name string, a *anchor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := wire.WorkKey{Dialect: p.Dialect, Namespace: e.cfg.Cluster, Name: of}
	if of == "" || e.hash != "" && name != e.hash+"-"+of {
		key = strange(name)
	}
	if e.works[key.String()] != nil || e.anchors[p.Dialect+"/"+name] != nil {
		return
	}
	w := e.workFor(p, key)
	e.nameAnchor(w, name)
	e.hold(w, a)
	if e.synced && a.evicting.IsZero() {
		w.orphan(time.Now())
	}
	e.queue.Add(key.String())
}

func (e *Engine) shake(anchor string) {
	e.mu.Lock()
	w := e.anchors[anchor]
	e.mu.Unlock()
	if w == nil {
		return
	}
	w.shaken.Store(true)
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

// await keeps the definitions watched for as long as any work names a kind that
// is not served, so that it goes on when the kind appears.
func (e *Engine) await(w *work, steps []step) {
	key := w.key.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, works := range e.waiting {
		delete(works, key)
	}
	for _, s := range steps {
		var unknown *UnknownKindError
		if !errors.As(s.err, &unknown) {
			continue
		}
		group := unknown.Kind.Group
		if e.waiting[group] == nil {
			e.waiting[group] = map[string]struct{}{}
		}
		e.waiting[group][key] = struct{}{}
	}
	e.settle()
}

// unwait ends what await began; e.mu is held.
func (e *Engine) unwait(key string) {
	for _, works := range e.waiting {
		delete(works, key)
	}
	e.settle()
}

// settle starts or stops the watch of definitions; e.mu is held.
func (e *Engine) settle() {
	for group, works := range e.waiting {
		if len(works) == 0 {
			delete(e.waiting, group)
		}
	}
	switch {
	case len(e.waiting) > 0 && e.stopDefinitions == nil:
		s := scope{GroupVersionResource: definitions()}
		e.stopDefinitions = e.follow(s, e.spoke.metadataFeed(s), definitionSink{e})
	case len(e.waiting) == 0 && e.stopDefinitions != nil:
		e.stopDefinitions()
		e.stopDefinitions = nil
	}
}

// definitionSink queues the works that wait for a group of which a definition
// appeared or changed; that it was established is one of those changes.
type definitionSink struct{ engine *Engine }

// Event implements watcher.Sink.
func (d definitionSink) Event(obj metav1.Object, deleted bool) {
	if deleted {
		return
	}
	e, group := d.engine, groupOf(obj.GetName())
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting[group]) == 0 {
		return
	}
	e.spoke.kinds.forgetGroup(group)
	for key := range e.waiting[group] {
		e.queue.Add(key)
	}
}

// Begin implements watcher.Sink.
func (definitionSink) Begin() {}

// End implements watcher.Sink.
func (definitionSink) End(string) {}

// Refused implements watcher.Sink.
func (d definitionSink) Refused(err error) {
	d.engine.log.Error(err, "cannot watch definitions; unknown kinds are tried again at intervals")
}

// count tells how many works there are in each state.
func (e *Engine) count() map[string]int {
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
