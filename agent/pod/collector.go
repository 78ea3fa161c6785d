// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/agent/pod/content"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// triesAtLooking is how often a look into a namespace that fails is tried again: for some
// minutes. Then it waits for the next word about the namespace.
const triesAtLooking = 12

// collector tends the namespaces that the agent made for pods: it tells the hub of them,
// and removes those that the hub has no more. It looks into one at a time.
type collector struct {
	engine *Engine
	cfg    Config
	log    logr.Logger
	spoke  *spoke
	reader *content.Reader
	// queue holds names of namespaces of the spoke.
	queue workqueue.TypedRateLimitingInterface[string]
	// made is what the hub is told of, gone what it has no more.
	made *resource.Source
	gone *resource.Mirror

	// What follows is guarded by Engine.mu.

	// namespaces are those that bear our label, ended the UIDs of those that the hub has
	// no more; both by their names in the spoke.
	namespaces map[string]madeNamespace
	ended      map[string]types.UID
	// told: the hub has told of all that it has no more.
	told bool
	// closing are those that no pod is to come to: they are looked into.
	closing map[string]struct{}
}

// madeNamespace is a namespace that bears our label. It is comparable.
type madeNamespace struct {
	name     string
	uid      types.UID
	written  origin
	kept     string
	deleting bool
}

func madeNamespaceOf(ns metav1.Object) madeNamespace {
	return madeNamespace{
		name: ns.GetName(), uid: ns.GetUID(),
		written:  parseOrigin(ns.GetAnnotations()[AnnotationHubNamespace]),
		kept:     ns.GetAnnotations()[AnnotationKeptBecause],
		deleting: ns.GetDeletionTimestamp() != nil,
	}
}

func isMade(ns metav1.Object) bool { return ns.GetLabels()[LabelCreatedBy] == Creator }

func newCollector(e *Engine) *collector {
	c := &collector{
		engine: e, cfg: e.cfg, log: e.log, spoke: e.spoke,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, longestRetry)),
		made:       resource.NewSource(wire.KindPodNamespace),
		namespaces: map[string]madeNamespace{},
		ended:      map[string]types.UID{},
		closing:    map[string]struct{}{},
	}
	c.reader = &content.Reader{Discovery: e.spoke.kinds, Metadata: e.spoke.names, Ignore: c.spare}
	c.gone = resource.NewMirror(wire.KindPodNamespaceGone, resource.Receiver{Put: c.acceptGone, Delete: c.withdrawGone, Synced: c.goneSynced})
	return c
}

// serve tends namespaces until the queue is shut down.
func (c *collector) serve(ctx context.Context) { work(ctx, c.queue, c.handle) }

func (c *collector) handle(ctx context.Context, name string) {
	err := c.tend(ctx, name)
	if err == nil || isStop(ctx) {
		c.queue.Forget(name)
		return
	}
	c.log.V(1).Info("namespace is looked into again", "namespace", name, "err", err.Error())
	if c.queue.NumRequeues(name) >= triesAtLooking {
		c.queue.Forget(name)
		return
	}
	c.queue.AddRateLimited(name)
}

// tend does the one thing that is to be done about a namespace.
func (c *collector) tend(ctx context.Context, name string) error {
	e := c.engine
	e.mu.Lock()
	seen, now := c.namespaces[name], c.tenancy(name)
	what := decideNamespace(now)
	if what == choreCollect {
		c.closing[name] = struct{}{}
	}
	e.mu.Unlock()
	switch what {
	case choreClaim:
		changes := map[string]any{AnnotationHubNamespace: now.from.String(), AnnotationKeptBecause: nil}
		return errors.Join(c.annotate(ctx, seen, changes), c.withdraw(ctx, name))
	case choreClear:
		return c.annotate(ctx, seen, map[string]any{AnnotationKeptBecause: nil})
	case choreCollect:
		defer c.reopen(name)
		return c.collect(ctx, seen)
	case choreNone:
	}
	return nil
}

// tenancy of a namespace; Engine.mu is held.
func (c *collector) tenancy(name string) tenancy {
	e := c.engine
	seen, made := c.namespaces[name]
	s := tenancy{
		made: made, deleting: seen.deleting, written: seen.written, kept: seen.kept != "",
		listed: e.listed && e.synced, told: c.told,
	}
	uid, ended := c.ended[name]
	s.gone = ended && seen.written == e.originOf(name, uid)
	var latest time.Time
	for at, en := range e.entries {
		if at.Namespace != name {
			continue
		}
		s.used = true
		if w := en.want; w != nil && w.namespaceUID != "" && !w.received.Before(latest) {
			latest, s.from = w.received, e.originOf(name, w.namespaceUID)
		}
	}
	return s
}

// reopen lets pods come to a namespace again.
func (c *collector) reopen(name string) {
	e := c.engine
	e.namespaces.forget(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(c.closing, name)
	for at := range e.entries {
		if at.Namespace == name {
			e.queue.Add(item{place: at})
		}
	}
}

// open refuses a pod of a namespace that is looked into: it would end with that.
func (c *collector) open(name string) error {
	if c == nil {
		return nil
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if _, closing := c.closing[name]; !closing {
		return nil
	}
	return &RefusedError{
		Reason: ReasonNamespaceTerminating, Retried: true,
		Message: fmt.Sprintf("namespace %q of the spoke was that of another one of the hub, and is removed if it is empty", name),
	}
}

// wanted takes that a pod is to be in a namespace; Engine.mu is held.
func (c *collector) wanted(name string, w *wanted) {
	if c == nil || w.namespaceUID == "" {
		return
	}
	if seen, ok := c.namespaces[name]; ok && (seen.kept != "" || seen.written != c.engine.originOf(name, w.namespaceUID)) {
		c.queue.Add(name)
	}
}

// left takes that a pod of a namespace is forgotten; Engine.mu is held.
func (c *collector) left(name string) {
	if c == nil {
		return
	}
	if _, ended := c.ended[name]; ended {
		c.queue.Add(name)
	}
}

// listed looks at all namespaces that the hub has no more, once it is known what pods
// there are; Engine.mu is held.
func (c *collector) listed() {
	if c == nil {
		return
	}
	for name := range c.ended {
		c.queue.Add(name)
	}
}

// acceptGone takes that the hub has a namespace no more.
func (c *collector) acceptGone(r resource.Resource) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	name := c.cfg.Prefix + r.Key
	c.ended[name] = types.UID(r.UID)
	c.queue.Add(name)
}

// withdrawGone takes that back: the hub has it, or was told that we have not.
func (c *collector) withdrawGone(key string) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	name := c.cfg.Prefix + key
	delete(c.ended, name)
	c.queue.Add(name)
}

// goneSynced: the hub has told of all that it has no more.
func (c *collector) goneSynced() {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	c.told = true
	for name, seen := range c.namespaces {
		if seen.kept != "" {
			c.queue.Add(name)
		}
	}
}

// observe takes what a namespace is now; Engine.mu is held.
func (c *collector) observe(now madeNamespace) {
	before := c.namespaces[now.name]
	c.namespaces[now.name] = now
	c.report(now)
	// What we wrote ourselves asks for nothing.
	if before.uid != now.uid || before.written != now.written || now.kept == "" {
		c.queue.Add(now.name)
	}
}

// vanish takes that a namespace is there no more, or is not ours; Engine.mu is held.
func (c *collector) vanish(name string) {
	if _, ok := c.namespaces[name]; !ok {
		return
	}
	delete(c.namespaces, name)
	if key, ok := c.engine.hubNamespace(name); ok {
		c.made.Delete(key)
	}
}

// report tells the hub of a namespace that we made for one of its; Engine.mu is held.
func (c *collector) report(now madeNamespace) {
	key, ok := c.engine.hubNamespace(now.name)
	switch {
	case !ok:
	case now.deleting || now.written.uid == "" || now.written != c.engine.originOf(now.name, now.written.uid):
		c.made.Delete(key)
	default:
		if err := c.made.Put(resource.Resource{Key: key, UID: string(now.written.uid)}); err != nil {
			c.log.Error(err, "cannot tell the hub of a namespace", "namespace", now.name)
		}
	}
}

// madeSink feeds the collector.
type madeSink struct {
	collector *collector
	seen      map[string]struct{}
}

// Event implements follow.Sink.
func (s *madeSink) Event(obj metav1.Object, deleted bool) {
	c := s.collector
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	if deleted {
		// Pods that waited for its end need not wait longer.
		defer c.engine.permitted(ns.Name)
	} else if s.seen != nil {
		s.seen[ns.Name] = struct{}{}
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if deleted {
		c.vanish(ns.Name)
		return
	}
	c.observe(madeNamespaceOf(ns))
}

// Begin implements follow.Sink.
func (s *madeSink) Begin() { s.seen = map[string]struct{}{} }

// End implements follow.Sink.
func (s *madeSink) End(string) {
	c := s.collector
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	for name := range c.namespaces {
		if _, ok := s.seen[name]; !ok {
			c.vanish(name)
		}
	}
	s.seen = nil
	c.made.Complete()
}

// Refused implements follow.Sink.
func (s *madeSink) Refused(err error) {
	s.collector.log.V(1).Info("cannot watch the namespaces that were made for pods", "err", err.Error())
}
