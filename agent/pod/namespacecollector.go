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

// maxInspections is how often a failed look into a namespace is repeated at least, which
// takes some minutes. It is repeated further until the namespace says why it stays, or the
// API server refuses the annotation; then whoever removes that annotation has it repeated.
const maxInspections = 12

// namespaceCollector tells the hub of the namespaces that the agent made for pods, and deletes
// those that the hub has no more. It looks into one at a time.
type namespaceCollector struct {
	engine *Engine
	cfg    Config
	log    logr.Logger
	spoke  *spokeClient
	reader *inventory.Reader
	// queue holds names of namespaces of the spoke.
	queue workqueue.TypedRateLimitingInterface[string]
	// createdSource is what the hub is told of, gone what it has no more.
	createdSource *resource.Source
	goneMirror    *resource.Mirror

	// What follows is guarded by Engine.mu.

	// namespaces are those that bear our label, ended the UIDs of those that the hub has
	// no more; both by their names in the spoke.
	namespaces map[string]createdNamespace
	goneOnHub  map[string]types.UID
	// collecting are those that are looked into. No pod is made there meanwhile.
	collecting map[string]struct{}
}

// createdNamespace is a namespace that bears our label. It is comparable.
type createdNamespace struct {
	name       string
	uid        types.UID
	origin     origin
	keptReason string
	// unrecordedReason is why it stays where the annotation that says so was refused. It is not
	// known of a namespace that the watch has told of since.
	unrecordedReason string
	deleting         bool
}

func newCreatedNamespace(ns metav1.Object) createdNamespace {
	return createdNamespace{
		name: ns.GetName(), uid: ns.GetUID(),
		origin:     parseOrigin(ns.GetAnnotations()[AnnotationHubNamespace]),
		keptReason: ns.GetAnnotations()[AnnotationKeptBecause],
		deleting:   ns.GetDeletionTimestamp() != nil,
	}
}

func isCreatedByAgent(ns metav1.Object) bool { return ns.GetLabels()[LabelCreatedBy] == Creator }

func newNamespaceCollector(e *Engine) *namespaceCollector {
	c := &namespaceCollector{
		engine: e, cfg: e.cfg, log: e.log, spoke: e.spoke,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry)),
		createdSource: resource.NewSource(wire.KindPodNamespace),
		namespaces:    map[string]createdNamespace{},
		goneOnHub:     map[string]types.UID{},
		collecting:    map[string]struct{}{},
	}
	c.reader = &inventory.Reader{Discovery: e.spoke.discovery, Metadata: e.spoke.metadata, Ignore: c.isOwnObject}
	c.goneMirror = resource.NewMirror(wire.KindPodNamespaceGone, resource.Receiver{Put: c.handleGone, Delete: c.handleGoneDeleted})
	return c
}

// run handles namespaces until the queue is shut down.
func (c *namespaceCollector) run(ctx context.Context) { runQueue(ctx, c.queue, c.handle) }

func (c *namespaceCollector) handle(ctx context.Context, name string) {
	err := c.reconcile(ctx, name)
	if err == nil || isCanceled(ctx) {
		c.queue.Forget(name)
		return
	}
	c.log.V(1).Info("namespace is looked into again", "namespace", name, "err", err.Error())
	if c.queue.NumRequeues(name) >= maxInspections && c.hasKeptReason(name) {
		c.queue.Forget(name)
		return
	}
	c.queue.AddRateLimited(name)
}

// hasKeptReason reports whether a namespace says why it stays, or cannot be made to.
func (c *namespaceCollector) hasKeptReason(name string) bool {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	seen := c.namespaces[name]
	return seen.keptReason != "" || seen.unrecordedReason != ""
}

// reconcile does what is to be done about a namespace.
func (c *namespaceCollector) reconcile(ctx context.Context, name string) error {
	e := c.engine
	e.mu.Lock()
	seen, now := c.namespaces[name], c.decisionInput(name)
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

// decisionInput returns what is known of a namespace; Engine.mu is held.
func (c *namespaceCollector) decisionInput(name string) namespaceInput {
	e := c.engine
	seen, made := c.namespaces[name]
	s := namespaceInput{
		exists: made, deleting: seen.deleting, origin: seen.origin, isKept: seen.keptReason != "",
		listed: e.podsListed && e.hubSynced,
	}
	uid, ended := c.goneOnHub[name]
	s.goneOnHub = ended && seen.origin == e.originOf(name, uid)
	var latest time.Time
	for at, en := range e.pods {
		if at.Namespace != name {
			continue
		}
		s.isUsed = true
		if w := en.desired; w != nil && w.namespaceUID != "" && !w.received.Before(latest) {
			latest, s.from = w.received, e.originOf(name, w.namespaceUID)
		}
	}
	return s
}

// stopCollecting lets pods be made in a namespace again.
func (c *namespaceCollector) stopCollecting(name string) {
	e := c.engine
	e.namespaces.invalidate(name)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(c.collecting, name)
	for at := range e.pods {
		if at.Namespace == name {
			e.queue.Add(queueItem{pod: at})
		}
	}
}

// refuseWhileCollecting refuses a pod in a namespace that is looked into: it would be
// deleted with the namespace.
func (c *namespaceCollector) refuseWhileCollecting(name string) error {
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

// handlePodDesired queues a namespace whose annotations are not those that follow from a pod that
// the hub wants there; Engine.mu is held.
func (c *namespaceCollector) handlePodDesired(name string, w *desiredPod) {
	if c == nil || w.namespaceUID == "" {
		return
	}
	if seen, ok := c.namespaces[name]; ok && (seen.keptReason != "" || seen.origin != c.engine.originOf(name, w.namespaceUID)) {
		c.queue.Add(name)
	}
}

// handlePodForgotten queues a namespace that the hub has no more, as that pod may have been its
// last; Engine.mu is held.
func (c *namespaceCollector) handlePodForgotten(name string) {
	if c == nil {
		return
	}
	if _, ended := c.goneOnHub[name]; ended {
		c.queue.Add(name)
	}
}

// handlePodsKnown queues all namespaces that the hub has no more: whether they have pods is
// known from here on; Engine.mu is held.
func (c *namespaceCollector) handlePodsKnown() {
	if c == nil {
		return
	}
	for name := range c.goneOnHub {
		c.queue.Add(name)
	}
}

// handleGone queues a namespace that the hub says it has no more.
func (c *namespaceCollector) handleGone(r resource.Resource) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	name := c.cfg.Prefix + r.Key
	c.goneOnHub[name] = types.UID(r.UID)
	c.queue.Add(name)
}

// handleGoneDeleted forgets that the hub has a namespace no more: it has it again, or heard that
// there is none here.
func (c *namespaceCollector) handleGoneDeleted(key string) {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	delete(c.goneOnHub, c.cfg.Prefix+key)
}

// observe records a namespace as the watch has it; Engine.mu is held.
func (c *namespaceCollector) observe(now createdNamespace) {
	before := c.namespaces[now.name]
	c.namespaces[now.name] = now
	c.publish(now)
	// The event of our own annotation queues nothing.
	if before.uid != now.uid || before.origin != now.origin || now.keptReason == "" {
		c.queue.Add(now.name)
	}
}

// remove drops a namespace that is gone, or whose label is; Engine.mu is held.
func (c *namespaceCollector) remove(name string) {
	if _, ok := c.namespaces[name]; !ok {
		return
	}
	delete(c.namespaces, name)
	if key, ok := c.engine.hubNamespace(name); ok {
		c.createdSource.Delete(key)
	}
}

// publish tells the hub of a namespace that we made for one of its; Engine.mu is held.
func (c *namespaceCollector) publish(now createdNamespace) {
	key, ok := c.engine.hubNamespace(now.name)
	switch {
	case !ok:
	case now.deleting || now.origin.uid == "" || now.origin != c.engine.originOf(now.name, now.origin.uid):
		c.createdSource.Delete(key)
	default:
		if err := c.createdSource.Put(resource.Resource{Key: key, UID: string(now.origin.uid)}); err != nil {
			c.log.Error(err, "cannot tell the hub of a namespace", "namespace", now.name)
		}
	}
}

// namespaceSink feeds the collector.
type namespaceSink struct {
	collector *namespaceCollector
	seen      map[string]struct{}
}

func (s *namespaceSink) HandleEvent(obj metav1.Object, deleted bool) {
	c := s.collector
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return
	}
	if deleted {
		// Pods that waited for its end need not wait longer.
		defer c.engine.retryNamespace(ns.Name)
	} else if s.seen != nil {
		s.seen[ns.Name] = struct{}{}
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	if deleted {
		c.remove(ns.Name)
		return
	}
	c.observe(newCreatedNamespace(ns))
}

func (s *namespaceSink) StartSync() { s.seen = map[string]struct{}{} }

func (s *namespaceSink) FinishSync(string) {
	c := s.collector
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	for name := range c.namespaces {
		if _, ok := s.seen[name]; !ok {
			c.remove(name)
		}
	}
	s.seen = nil
	c.createdSource.Complete()
}

// HandleDenied implements watcher.Handler.
func (s *namespaceSink) HandleDenied(err error) {
	s.collector.log.V(1).Info("cannot watch the namespaces that were made for pods", "err", err.Error())
}
