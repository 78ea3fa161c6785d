// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// Pause before what failed is tried again; a change ends it.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Minute
	// actionTimeout with one action, which is some requests.
	actionTimeout = 30 * time.Second
)

// queueItem is what a worker takes from the queue: a pod or an object.
type queueItem struct {
	pod    namespacedName
	object wire.PodObjectKey
}

// Engine runs the pods of one hub in this cluster.
type Engine struct {
	cfg        Config
	log        logr.Logger
	spoke      *spokeClient
	namespaces *namespaceEnsurer
	accounts   *accountEnsurer
	queue      workqueue.TypedRateLimitingInterface[queueItem]
	metrics    *metrics

	statuses, events        *resource.Source
	podMirror, objectMirror *resource.Mirror
	forcedMirror            *resource.Mirror
	// tokenMirror is nil unless pods get those of the hub.
	tokenMirror *resource.Mirror
	// collector is nil where no namespaces are made.
	collector *namespaceCollector

	// watchers counts followers; they run under lifetime.
	watchers   sync.WaitGroup
	runContext context.Context

	mu sync.Mutex
	// All below are guarded by mu.
	pods    map[namespacedName]*podState
	objects map[wire.PodObjectKey]*copyState
	// forcedDeletions are the pods that were deleted on the hub without a grace.
	forcedDeletions map[types.UID]struct{}
	// retried are the places of pods that are tried again.
	retried map[namespacedName]struct{}
	// podsListed: the spoke's pods are known. synced: the hub has told all it wants.
	podsListed, hubSynced bool
	// listError says why the spoke's pods cannot be listed.
	listError error
	// eventWatches are the namespaces that have pods of ours.
	eventWatches map[string]*eventWatch
}

// New returns an engine; Run starts it.
func New(cfg Config) (*Engine, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	s, err := newSpokeClient(cfg.REST, cfg.Account)
	if err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	e := &Engine{
		cfg:   cfg,
		log:   cfg.Logger,
		spoke: s,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[queueItem](minRetry, maxRetry)),
		accounts:        newAccountEnsurer(s.core, cfg.HubID),
		statuses:        resource.NewSource(wire.KindPodStatus),
		events:          resource.NewSource(wire.KindPodEvent),
		pods:            map[namespacedName]*podState{},
		objects:         map[wire.PodObjectKey]*copyState{},
		forcedDeletions: map[types.UID]struct{}{},
		retried:         map[namespacedName]struct{}{},
		eventWatches:    map[string]*eventWatch{},
	}
	e.namespaces = newNamespaceEnsurer(s.core, cfg, e.invalidateCopies)
	if len(cfg.Namespaces) == 0 {
		e.collector = newNamespaceCollector(e)
	}
	e.podMirror = resource.NewMirror(wire.KindPod, resource.Receiver{Put: e.handlePod, Delete: e.handlePodDeleted, Synced: e.handlePodsSynced})
	e.objectMirror = resource.NewMirror(wire.KindPodObject, resource.Receiver{Put: e.handleObject, Delete: e.handleObjectDeleted})
	e.forcedMirror = resource.NewMirror(wire.KindPodForced, resource.Receiver{Put: e.handleForcedDeletion, Delete: e.handleForcedDeletionDeleted})
	if cfg.Tokens == translate.TokensHub {
		e.tokenMirror = resource.NewMirror(wire.KindPodToken, resource.Receiver{Put: e.handleToken, Delete: e.handleTokenDeleted})
	}
	if e.metrics, err = newMetrics(cfg.Registerer, e.countStates); err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	return e, nil
}

// Sources of statuses and events, for the agent's end of Sync.
func (e *Engine) Sources() []*resource.Source {
	sources := []*resource.Source{e.statuses, e.events}
	if e.collector != nil {
		sources = append(sources, e.collector.createdSource)
	}
	return sources
}

// Mirrors of pods and of what they refer to, for the agent's end of Sync.
func (e *Engine) Mirrors() []*resource.Mirror {
	mirrors := []*resource.Mirror{e.podMirror, e.objectMirror, e.forcedMirror}
	if e.tokenMirror != nil {
		mirrors = append(mirrors, e.tokenMirror)
	}
	if e.collector != nil {
		mirrors = append(mirrors, e.collector.goneMirror)
	}
	return mirrors
}

// Run runs pods until ctx ends; then those in the spoke stay as they are. It acts
// when it has listed them.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.runContext = ctx
	e.mu.Unlock()
	var wg sync.WaitGroup
	for range e.cfg.Workers {
		wg.Go(func() { e.runWorker(ctx) })
	}
	e.startWatcher(ctx, e.spoke.pods(e.cfg.HubID), &podSink{engine: e})
	e.startWatcher(ctx, e.spoke.allowedNamespaces(), allowedSink{engine: e})
	if e.collector != nil {
		e.startWatcher(ctx, e.spoke.createdNamespaces(), &namespaceSink{collector: e.collector})
		wg.Go(func() { e.collector.run(ctx) })
	}
	<-ctx.Done()
	e.shutDownQueues()
	wg.Wait()
	e.watchers.Wait()
	e.spoke.close()
	return nil
}

// shutDownQueues ends the queues, and so those who serve them.
func (e *Engine) shutDownQueues() {
	e.queue.ShutDown()
	if e.collector != nil {
		e.collector.queue.ShutDown()
	}
}

// runWorker does what the queue says until it is shut down.
func (e *Engine) runWorker(ctx context.Context) { runQueue(ctx, e.queue, e.handle) }

// runQueue has each item of a queue handled until the queue is shut down, and none once ctx
// has ended.
func runQueue[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handle func(context.Context, T)) {
	for {
		it, quit := queue.Get()
		if quit {
			return
		}
		if ctx.Err() == nil {
			patient, cancel := context.WithTimeout(ctx, actionTimeout)
			handle(patient, it)
			cancel()
		}
		queue.Done(it)
	}
}

func (e *Engine) handle(ctx context.Context, it queueItem) {
	var err error
	if it.object.Name != "" {
		err = e.reconcileObject(ctx, it.object)
	} else {
		err = e.reconcile(ctx, it.pod)
	}
	if err == nil {
		e.queue.Forget(it)
		return
	}
	e.log.V(1).Info("tried again", "pod", it.pod.String(), "object", it.object.String(), "err", err.Error())
	e.queue.AddRateLimited(it)
}

// spokeName is where a pod of the hub is in the spoke.
func (e *Engine) spokeName(key wire.PodKey) namespacedName {
	return namespacedName{Namespace: e.cfg.Prefix + key.Namespace, Name: key.Name}
}

func (e *Engine) hubNamespace(namespace string) (string, bool) {
	return strings.CutPrefix(namespace, e.cfg.Prefix)
}

// handlePod takes what the hub wants of one pod.
func (e *Engine) handlePod(r resource.Resource) {
	key, err := wire.ParsePodKey(r.Key)
	if err != nil {
		e.log.Error(err, "hub sent a pod that cannot be read", "pod", r.Key)
		return
	}
	body, err := wire.DecodePod(r.Key, r.Body)
	if err != nil {
		e.log.Error(err, "hub sent a pod that cannot be read", "pod", r.Key)
	}
	w := e.newDesiredPod(key, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.getOrCreatePod(e.spokeName(key))
	en.withdrawn, en.unreadable = false, err != nil
	e.queue.Add(queueItem{pod: en.name})
	if err != nil {
		return // what we know of it before is still the best
	}
	if en.desired != nil && en.desired.uid != w.uid {
		en.absentStatus = nil
	}
	en.desired = w
	e.collector.handlePodDesired(en.name.Namespace, w)
	e.updateReferences(en)
	en.updateApplied()
	e.publishStatus(en)
}

// newDesiredPod makes of the hub's pod what is to be in the spoke.
func (e *Engine) newDesiredPod(key wire.PodKey, body wire.Pod) *desiredPod {
	hub := &body.Pod
	w := &desiredPod{
		desiredState: desiredState{uid: hub.UID, wasInCluster: body.Seen, hasEnded: body.Ended, deleting: hub.DeletionTimestamp != nil},
		generation:   hub.Generation,
		group:        body.Group,
		splitLabel:   body.SplitLabel,
		refs:         objectKeys(podrefs.Of(hub), key.Namespace),
		received:     time.Now(),

		namespaceUID: body.NamespaceUID,
	}
	if hub.DeletionGracePeriodSeconds != nil {
		w.grace = *hub.DeletionGracePeriodSeconds
	}
	w.grace = max(w.grace, leastGrace)
	w.translate(&body, e.cfg, e.spokeName(key).Namespace)
	return w
}

func (w *desiredPod) translate(body *wire.Pod, cfg Config, namespace string) {
	hub := &body.Pod
	options := translate.Options{
		HubID: cfg.HubID, Namespace: namespace, Tokens: cfg.Tokens, HostAccess: cfg.HostAccess,
		Issued: body.Issued, APIHost: cfg.APIHost, APIPort: cfg.APIPort, Annotations: cfg.Annotations,
	}
	pod, err := translate.NewDesiredPod(hub, options)
	if w.group != "" && cfg.SplitLabel == "" {
		pod, err = nil, noGroupsError(w.group)
	}
	w.pod = pod
	if pod == nil {
		w.refusal, w.isRefused = err, true
		return
	}
	w.partialRefusal = err
	w.leftOutAnnotations = strings.Join(translate.LeftOutAnnotations(hub, options), ", ")
	w.refs = requiredCopies(pod, hub.Namespace)
}

// handlePodDeleted: the pod is no more on the hub, and nobody waits for its end.
func (e *Engine) handlePodDeleted(key string) {
	k, err := wire.ParsePodKey(key)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	en, ok := e.pods[e.spokeName(k)]
	if !ok {
		return
	}
	en.desired, en.withdrawn, en.unreadable = nil, true, false
	e.updateReferences(en)
	e.queue.Add(queueItem{pod: en.name})
}

// handlePodsSynced: the hub has told all it wants. What it did not mention it does not know.
func (e *Engine) handlePodsSynced() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hubSynced {
		e.hubSynced = true
		e.collector.handlePodsKnown()
	}
	for at, en := range e.pods {
		if en.desired == nil {
			e.queue.Add(queueItem{pod: at})
		}
	}
	e.completeSources()
}

// completeSources says that from here on the hub knows all that we know, once both sides
// have told all; e.mu is held.
func (e *Engine) completeSources() {
	if !e.podsListed || !e.hubSynced {
		return
	}
	e.statuses.Complete()
	for _, s := range e.eventWatches {
		if !s.listed {
			return
		}
	}
	e.events.Complete()
}

// isCanceled tells an error that says nothing but that we are to end.
func isCanceled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
