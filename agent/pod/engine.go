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
	firstRetry   = 50 * time.Millisecond
	longestRetry = time.Minute
	// patience with one action, which is some requests.
	patience = 30 * time.Second
)

// item is what a worker takes from the queue: a pod or an object.
type item struct {
	place  place
	object wire.PodObjectKey
}

// Engine runs the pods of one hub in this cluster.
type Engine struct {
	cfg        Config
	log        logr.Logger
	spoke      *spoke
	namespaces *namespaces
	accounts   *accounts
	queue      workqueue.TypedRateLimitingInterface[item]
	metrics    *metrics

	statuses, happenings *resource.Source
	pods, contents       *resource.Mirror
	forcedPods           *resource.Mirror
	// tokens is nil unless pods get those of the hub.
	tokens *resource.Mirror
	// collector is nil where no namespaces are made.
	collector *collector

	// following counts followers; they run under lifetime.
	following sync.WaitGroup
	lifetime  context.Context

	mu sync.Mutex
	// All below are guarded by mu.
	entries map[place]*entry
	objects map[wire.PodObjectKey]*object
	// forced are the pods that were deleted on the hub without a grace.
	forced map[types.UID]struct{}
	// failing are the places of pods that are tried again.
	failing map[place]struct{}
	// listed: the spoke's pods are known. synced: the hub has told all it wants.
	listed, synced bool
	// blind says why the spoke's pods cannot be listed.
	blind error
	// scopes are the namespaces that have pods of ours.
	scopes map[string]*scope
}

// New returns an engine; Run starts it.
func New(cfg Config) (*Engine, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	s, err := newSpoke(cfg.REST, cfg.Account)
	if err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	e := &Engine{
		cfg:   cfg,
		log:   cfg.Logger,
		spoke: s,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, longestRetry)),
		accounts:   newAccounts(s.core, cfg.HubID),
		statuses:   resource.NewSource(wire.KindPodStatus),
		happenings: resource.NewSource(wire.KindPodEvent),
		entries:    map[place]*entry{},
		objects:    map[wire.PodObjectKey]*object{},
		forced:     map[types.UID]struct{}{},
		failing:    map[place]struct{}{},
		scopes:     map[string]*scope{},
	}
	e.namespaces = newNamespaces(s.core, cfg, e.unsettle)
	if len(cfg.Namespaces) == 0 {
		e.collector = newCollector(e)
	}
	e.pods = resource.NewMirror(wire.KindPod, resource.Receiver{Put: e.accept, Delete: e.withdraw, Synced: e.complete})
	e.contents = resource.NewMirror(wire.KindPodObject, resource.Receiver{Put: e.acceptObject, Delete: e.withdrawObject})
	e.forcedPods = resource.NewMirror(wire.KindPodForced, resource.Receiver{Put: e.acceptForced, Delete: e.withdrawForced})
	if cfg.Tokens == translate.TokensHub {
		e.tokens = resource.NewMirror(wire.KindPodToken, resource.Receiver{Put: e.acceptToken, Delete: e.withdrawToken})
	}
	if e.metrics, err = newMetrics(cfg.Registerer, e.states); err != nil {
		return nil, fmt.Errorf("pod engine: %w", err)
	}
	return e, nil
}

// Sources of statuses and events, for the agent's end of Sync.
func (e *Engine) Sources() []*resource.Source {
	sources := []*resource.Source{e.statuses, e.happenings}
	if e.collector != nil {
		sources = append(sources, e.collector.made)
	}
	return sources
}

// Mirrors of pods and of what they refer to, for the agent's end of Sync.
func (e *Engine) Mirrors() []*resource.Mirror {
	mirrors := []*resource.Mirror{e.pods, e.contents, e.forcedPods}
	if e.tokens != nil {
		mirrors = append(mirrors, e.tokens)
	}
	if e.collector != nil {
		mirrors = append(mirrors, e.collector.gone)
	}
	return mirrors
}

// Run runs pods until ctx ends; then those in the spoke stay as they are. It acts
// when it has listed them.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	e.lifetime = ctx
	e.mu.Unlock()
	var wg sync.WaitGroup
	for range e.cfg.Workers {
		wg.Go(func() { e.serve(ctx) })
	}
	e.follow(ctx, e.spoke.pods(e.cfg.HubID), &podSink{engine: e})
	e.follow(ctx, e.spoke.allowed(), permits{engine: e})
	if e.collector != nil {
		e.follow(ctx, e.spoke.made(), &madeSink{collector: e.collector})
		wg.Go(func() { e.collector.serve(ctx) })
	}
	<-ctx.Done()
	e.shutDown()
	wg.Wait()
	e.following.Wait()
	e.spoke.close()
	return nil
}

// shutDown ends the queues, and so those who serve them.
func (e *Engine) shutDown() {
	e.queue.ShutDown()
	if e.collector != nil {
		e.collector.queue.ShutDown()
	}
}

// serve does what the queue says until it is shut down.
func (e *Engine) serve(ctx context.Context) { work(ctx, e.queue, e.handle) }

// work has each item of a queue handled until the queue is shut down, and none once ctx
// has ended.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], handle func(context.Context, T)) {
	for {
		it, quit := queue.Get()
		if quit {
			return
		}
		if ctx.Err() == nil {
			patient, cancel := context.WithTimeout(ctx, patience)
			handle(patient, it)
			cancel()
		}
		queue.Done(it)
	}
}

func (e *Engine) handle(ctx context.Context, it item) {
	var err error
	if it.object.Name != "" {
		err = e.tend(ctx, it.object)
	} else {
		err = e.reconcile(ctx, it.place)
	}
	if err == nil {
		e.queue.Forget(it)
		return
	}
	e.log.V(1).Info("tried again", "pod", it.place.String(), "object", it.object.String(), "err", err.Error())
	e.queue.AddRateLimited(it)
}

// placeOf is where a pod of the hub is in the spoke.
func (e *Engine) placeOf(key wire.PodKey) place {
	return place{Namespace: e.cfg.Prefix + key.Namespace, Name: key.Name}
}

func (e *Engine) hubNamespace(namespace string) (string, bool) {
	return strings.CutPrefix(namespace, e.cfg.Prefix)
}

// accept takes what the hub wants of one pod.
func (e *Engine) accept(r resource.Resource) {
	key, err := wire.ParsePodKey(r.Key)
	if err != nil {
		e.log.Error(err, "hub sent a pod that cannot be read", "pod", r.Key)
		return
	}
	body, err := wire.DecodePod(r.Key, r.Body)
	if err != nil {
		e.log.Error(err, "hub sent a pod that cannot be read", "pod", r.Key)
	}
	w := e.wantedOf(key, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entryAt(e.placeOf(key))
	en.withdrawn, en.unreadable = false, err != nil
	e.queue.Add(item{place: en.place})
	if err != nil {
		return // what we know of it before is still the best
	}
	if en.want != nil && en.want.uid != w.uid {
		en.verdict = nil
	}
	en.want = w
	e.collector.podWanted(en.place.Namespace, w)
	e.relink(en)
	en.match()
	e.publish(en)
}

// wantedOf makes of the hub's pod what is to be in the spoke.
func (e *Engine) wantedOf(key wire.PodKey, body wire.Pod) *wanted {
	hub := &body.Pod
	w := &wanted{
		demand:     demand{uid: hub.UID, seen: body.Seen, ended: body.Ended, deleting: hub.DeletionTimestamp != nil},
		generation: hub.Generation,
		group:      body.Group,
		splitLabel: body.SplitLabel,
		refs:       refsOf(podrefs.Of(hub), key.Namespace),
		received:   time.Now(),

		namespaceUID: body.NamespaceUID,
	}
	if hub.DeletionGracePeriodSeconds != nil {
		w.grace = *hub.DeletionGracePeriodSeconds
	}
	w.grace = max(w.grace, leastGrace)
	w.shape(&body, e.cfg, e.placeOf(key).Namespace)
	return w
}

func (w *wanted) shape(body *wire.Pod, cfg Config, namespace string) {
	hub := &body.Pod
	options := translate.Options{
		HubID: cfg.HubID, Namespace: namespace, Tokens: cfg.Tokens, HostAccess: cfg.HostAccess,
		Issued: body.Issued, APIHost: cfg.APIHost, APIPort: cfg.APIPort, Annotations: cfg.Annotations,
	}
	pod, err := translate.Want(hub, options)
	if w.group != "" && cfg.SplitLabel == "" {
		pod, err = nil, noGroups(w.group)
	}
	w.pod = pod
	if pod == nil {
		w.refusal, w.refused = err, true
		return
	}
	w.partly = err
	w.leftOutAnnotations = strings.Join(translate.LeftOutAnnotations(hub, options), ", ")
	w.refs = needsOf(pod, hub.Namespace)
}

// withdraw: the pod is no more on the hub, and nobody waits for its end.
func (e *Engine) withdraw(key string) {
	k, err := wire.ParsePodKey(key)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	en, ok := e.entries[e.placeOf(k)]
	if !ok {
		return
	}
	en.want, en.withdrawn, en.unreadable = nil, true, false
	e.relink(en)
	e.queue.Add(item{place: en.place})
}

// complete: the hub has told all it wants. What it did not mention it does not know.
func (e *Engine) complete() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.synced {
		e.synced = true
		e.collector.podsKnown()
	}
	for at, en := range e.entries {
		if en.want == nil {
			e.queue.Add(item{place: at})
		}
	}
	e.conclude()
}

// conclude says that from here on the hub knows all that we know, once both sides
// have told all; e.mu is held.
func (e *Engine) conclude() {
	if !e.listed || !e.synced {
		return
	}
	e.statuses.Complete()
	for _, s := range e.scopes {
		if !s.listed {
			return
		}
	}
	e.happenings.Complete()
}

// isStop tells an error that says nothing but that we are to end.
func isStop(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
