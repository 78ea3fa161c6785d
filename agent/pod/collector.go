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

	"github.com/spokelet/spokelet/agent/pod/inventory"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// triesAtLooking is how often a failed look into a namespace is repeated at least, which
// takes some minutes. It is repeated further until the namespace says why it stays, or the
// API server refuses the annotation; then whoever removes that annotation has it repeated.
const triesAtLooking = 12

// collector tells the hub of the namespaces that the agent made for pods, and deletes
// those that the hub has no more. It looks into one at a time.
type collector struct {
	engine *Engine
	cfg    Config
	log    logr.Logger
	spoke  *spoke
	reader *inventory.Reader
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
	// collecting are those that are looked into. No pod is made there meanwhile.
	collecting map[string]struct{}
}

// madeNamespace is a namespace that bears our label. It is comparable.
type madeNamespace struct {
	name    string
	uid     types.UID
	written origin
	kept    string
	// refused is why it stays where the annotation that says so was refused. It is not
	// known of a namespace that the watch has told of since.
	refused  string
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
		collecting: map[string]struct{}{},
	}
	c.reader = &inventory.Reader{Discovery: e.spoke.kinds, Metadata: e.spoke.names, Ignore: c.madeForPods}
	c.gone = resource.NewMirror(wire.KindPodNamespaceGone, resource.Receiver{Put: c.acceptGone, Delete: c.withdrawGone})
	return c
}

// serve handles namespaces until the queue is shut down.
func (c *collector) serve(ctx context.Context) { work(ctx, c.queue, c.handle) }

func (c *collector) handle(ctx context.Context, name string) {
	err := c.perform(ctx, name)
	if err == nil || isStop(ctx) {
		c.queue.Forget(name)
		return
	}
	c.log.V(1).Info("namespace is looked into again", "namespace", name, "err", err.Error())
	if c.queue.NumRequeues(name) >= triesAtLooking && c.explained(name) {
		c.queue.Forget(name)
		return
	}
	c.queue.AddRateLimited(name)
}

// explained reports whether a namespace says why it stays, or cannot be made to.
func (c *collector) explained(name string) bool {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	seen := c.namespaces[name]
	return seen.kept != "" || seen.refused != ""
}

// perform does what is to be done about a namespace.
func (c *collector) perform(ctx context.Context, name string) error {
	e := c.engine
	e.mu.Lock()
	seen, now := c.namespaces[name], c.state(name)
	action := decideNamespace(now)
	if action == collectNamespace {
		c.collecting[name] = struct{}{}
	}
	e.mu.Unlock()
	switch action {
	case claimNamespace:
		changes := map[string]any{AnnotationHubNamespace: now.from.String(), AnnotationKeptBecause: nil}
		_, err := c.annotate(ctx, seen, changes)
		return errors.Join(err, c.revokeList(ctx, name))
	case collectNamespace:
		defer c.stopCollecting(name)
		return c.collect(ctx, seen)
	case leaveNamespace:
	}
	return nil
}

// state returns what is known of a namespace; Engine.mu is held.
func (c *collector) state(name string) namespaceState {
	e := c.engine
	seen, made := c.namespaces[name]
	s := namespaceState{
		made: made, deleting: seen.deleting, written: seen.written, kept: seen.kept != "",
		listed: e.listed && e.synced,
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

// stopCollecting lets pods be made in a namespace again.
func (c *collector) stopCollecting(name string) {
	e := c.engine
	e.namespaces.forget(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(c.collecting, name)
	for at := range e.entries {
		if at.Namespace == name {
			e.queue.Add(item{place: at})
		}
	}
}

// refuseWhileCollecting refuses a pod in a namespace that is looked into: it would be
// deleted with the namespace.
func (c *collector) refuseWhileCollecting(name string) error {
	if c == nil {
		return nil
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if _, ok := c.collecting[name]; !ok {
		return nil
	}
	return &RefusedError{
		Reason: ReasonNamespaceTerminating, Retried: true,
		Message: fmt.Sprintf("namespace %q of the spoke was that of another one of the hub, and is removed if it is empty", name),
	}
}

// podWanted queues a namespace whose annotations are not those that follow from a pod that
// the hub wants there; Engine.mu is held.
func (c *collector) podWanted(name string, w *wanted) {
	if c == nil || w.namespaceUID == "" {
		return
	}
	if seen, ok := c.namespaces[name]; ok && (seen.kept != "" || seen.written != c.engine.originOf(name, w.namespaceUID)) {
		c.queue.Add(name)
	}
}

// podForgotten queues a namespace that the hub has no more, as that pod may have been its
// last; Engine.mu is held.
func (c *collector) podForgotten(name string) {
	if c == nil {
		return
	}
	if _, ended := c.ended[name]; ended {
		c.queue.Add(name)
	}
}

// podsKnown queues all namespaces that the hub has no more: whether they have pods is
// known from here on; Engine.mu is held.
func (c *collector) podsKnown() {
	if c == nil {
		return
	}
	for name := range c.ended {
		c.queue.Add(name)
	}
}

// acceptGone queues a namespace that the hub says it has no more.
func (c *collector) acceptGone(r resource.Resource) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	name := c.cfg.Prefix + r.Key
	c.ended[name] = types.UID(r.UID)
	c.queue.Add(name)
}

// withdrawGone forgets that the hub has a namespace no more: it has it again, or heard that
// there is none here.
func (c *collector) withdrawGone(key string) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	delete(c.ended, c.cfg.Prefix+key)
}

// observe records a namespace as the watch has it; Engine.mu is held.
func (c *collector) observe(now madeNamespace) {
	before := c.namespaces[now.name]
	c.namespaces[now.name] = now
	c.report(now)
	// The event of our own annotation queues nothing.
	if before.uid != now.uid || before.written != now.written || now.kept == "" {
		c.queue.Add(now.name)
	}
}

// vanish drops a namespace that is gone, or whose label is; Engine.mu is held.
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

// HandleEvent implements follow.Sink.
func (s *madeSink) HandleEvent(obj metav1.Object, deleted bool) {
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

// StartSync implements follow.Sink.
func (s *madeSink) StartSync() { s.seen = map[string]struct{}{} }

// FinishSync implements follow.Sink.
func (s *madeSink) FinishSync(string) {
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

// HandleDenied implements follow.Sink.
func (s *madeSink) HandleDenied(err error) {
	s.collector.log.V(1).Info("cannot watch the namespaces that were made for pods", "err", err.Error())
}
