// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/agent/work/conditionrules"
	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// Pause before a failed work is tried again; a change of the work, or of what
	// it waits for, ends it.
	firstRetry   = 50 * time.Millisecond
	longestRetry = time.Minute
	// reporters compose statuses that no executor is about to compose.
	reporters = 2
)

// Engine executes the works of one hub in this cluster.
type Engine struct {
	cfg      Config
	log      logr.Logger
	spoke    *spoke
	table    *table
	source   *resource.Source
	reporter Reporter
	receiver resource.Receiver
	mirror   *resource.Mirror
	rules    *conditionrules.Compiler
	// executors says what works may do in somebody's name.
	executors *executor.Checker
	queue     workqueue.TypedDelayingInterface[string]
	reports   workqueue.TypedInterface[string]
	policies  map[string]Policy
	metrics   *metrics
	copy      *keeper
	backlog   *backlog

	// following counts followers; they run under lifetime.
	following sync.WaitGroup
	lifetime  context.Context

	mu sync.Mutex
	// All below are guarded by mu.
	works map[string]*work
	// anchors finds a work by its dialect and the name of its anchor.
	anchors map[string]*work
	// synced is set once the hub has told all it wants.
	synced bool
	// hash is that of the hub, empty until it is known.
	hash string
	// strangers are anchors of other agents, which are looked at once.
	strangers map[types.UID]struct{}
	// waiting holds, by API group, the works with a kind that is not served.
	waiting         map[string]map[string]struct{}
	stopDefinitions func()
}

// Reporter takes the statuses of works: the body of each resource is a
// wire.WorkStatus in JSON. Complete says that from now on all are known.
type Reporter interface {
	Put(resource.Resource) error
	Delete(key string)
	Complete()
}

// New returns an engine for the dialects it knows; Run starts it.
func New(cfg Config) (*Engine, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	s, err := newSpoke(cfg.REST, cfg.Impersonate)
	if err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	e := &Engine{
		cfg:      cfg,
		log:      cfg.Logger,
		spoke:    s,
		source:   resource.NewSource(wire.KindWorkStatus),
		queue:    workqueue.NewTypedDelayingQueue[string](),
		reports:  workqueue.NewTyped[string](),
		policies: map[string]Policy{},
		hash:     cfg.HubHash,
		rules:    conditionrules.NewCompiler(),
		works:    map[string]*work{},
		anchors:  map[string]*work{},
		waiting:  map[string]map[string]struct{}{},

		strangers: map[types.UID]struct{}{},
	}
	for _, d := range cfg.Dialects {
		e.policies[d] = allPolicies()[d]
	}
	e.backlog = newBacklog()
	e.table = newTable(e.followObjects, e.queue.Add, e.reports.Add)
	e.receiver = resource.Receiver{Put: e.accept, Delete: e.withdraw, Synced: e.complete}
	e.mirror = resource.NewMirror(wire.KindWork, e.receiver)
	if e.reporter = cfg.Reporter; e.reporter == nil {
		e.reporter = e.source
	}
	e.executors, err = executor.New(executor.Config{REST: cfg.REST, Caches: cfg.ExecutorCaches, Changed: e.requeueReviews, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	if e.metrics, err = newMetrics(cfg.Registerer, e.count); err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	if e.copy, err = newKeeper(cfg); err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	return e, nil
}

// Source of statuses, for the agent's end of Sync.
func (e *Engine) Source() *resource.Source { return e.source }

// Mirror of works, for the agent's end of Sync.
func (e *Engine) Mirror() *resource.Mirror { return e.mirror }

// Receiver takes works from a source other than Sync, one call at a time.
func (e *Engine) Receiver() resource.Receiver { return e.receiver }

// Run executes works until ctx ends. It takes up what the anchors say and what
// our own copy says, and goes on with or without a hub.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.lifetime = ctx
	defer e.queue.ShutDown()
	defer e.reports.ShutDown()
	defer e.executors.Close()
	e.recall(ctx)
	e.reporter.Complete()
	var wg sync.WaitGroup
	for range e.cfg.Workers {
		wg.Go(func() { serve(e.queue, func(key string) { e.execute(ctx, key) }) })
	}
	for range reporters {
		wg.Go(func() { serve(e.reports, e.tell) })
	}
	wg.Go(func() { e.copy.run(ctx, e.log) })
	wg.Go(func() { e.backlog.run(ctx, e.queue.Add) })
	e.followAnchors()
	<-ctx.Done()
	e.queue.ShutDown()
	e.reports.ShutDown()
	wg.Wait()
	e.following.Wait()
	e.spoke.close()
	return nil
}

// workFor returns the work of a key, made if need be; e.mu is held.
func (e *Engine) workFor(p Policy, key wire.WorkKey) *work {
	if w, ok := e.works[key.String()]; ok {
		return w
	}
	w := &work{key: key, policy: p}
	e.works[key.String()] = w
	if p.Dialect != wire.DialectManifestWork {
		e.anchors[p.Dialect+"/"+w.anchorName()] = w
	}
	return w
}

func (e *Engine) lookup(key string) *work {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.works[key]
}

// accept takes what the hub wants of one work.
func (e *Engine) accept(r resource.Resource) {
	if err := e.want(r, false); err != nil {
		e.log.Error(err, "hub sent a work that cannot be read", "work", r.Key)
		return
	}
	e.copy.put(r)
}

// remember takes what the hub wanted before we were started.
func (e *Engine) remember(r resource.Resource) {
	if err := e.want(r, true); err != nil {
		e.log.Error(err, "the copy of a work cannot be read", "work", r.Key)
	}
}

func (e *Engine) want(r resource.Resource, copied bool) error {
	key, err := wire.ParseWorkKey(r.Key)
	if err != nil {
		return err
	}
	p, ok := e.policies[key.Dialect]
	if !ok {
		return fmt.Errorf("dialect %q is not known", key.Dialect)
	}
	body, err := wire.DecodeWork(r.Body)
	if err != nil {
		return err
	}
	if err := e.admissible(key, body); err != nil {
		return err
	}
	d := &desired{
		uid: r.UID, generation: body.Generation, deleting: body.Deleting, copied: copied, received: time.Now(),
		suspended: body.Suspended, applied: body.AppliedGeneration, reportsDrift: body.ReportDrift,
		hubHash: body.HubHash, labels: body.Labels, healthy: body.Healthy,
		spec: body.Spec,
	}
	d.spec.Workload.Manifests = nil
	if n := len(body.Spec.Workload.Manifests); n > maxManifests {
		d.refusal = &TooManyError{Manifests: n}
	} else {
		d.manifests = parseManifests(body.Spec.Workload.Manifests)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.hubHash != "" && d.hubHash != e.hash && (!copied || e.hash == "") {
		e.hash = d.hubHash
	}
	w := e.workFor(p, key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if copied && w.want != nil {
		return nil // the hub was faster
	}
	w.want, w.orphaned = d, time.Time{}
	e.queue.Add(r.Key)
	return nil
}

// admissible refuses works that are not this cluster's.
func (e *Engine) admissible(key wire.WorkKey, body wire.Work) error {
	switch {
	case key.Dialect != wire.DialectManifestWork:
		return nil
	case key.Namespace != e.cfg.Cluster:
		return fmt.Errorf("work %s is not of cluster %q", key, e.cfg.Cluster)
	case body.HubHash == "":
		return fmt.Errorf("work %s does not say its hub's hash", key)
	}
	return nil
}

// withdraw: the work is no more on the hub.
func (e *Engine) withdraw(key string) {
	if w := e.lookup(key); w != nil {
		w.orphan(time.Now())
		e.queue.Add(key)
	}
}

// complete: the hub has told all it wants. What it did not mention it does not know.
func (e *Engine) complete() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced = true
	now := time.Now()
	for key, w := range e.works {
		if w.unconfirmed() {
			w.orphan(now)
			e.queue.Add(key)
		}
	}
}

// execute runs one work once and decides when to look again.
func (e *Engine) execute(ctx context.Context, key string) {
	recording := e.backlog.begin(key)
	defer e.backlog.end(recording)
	if name, ok := strings.CutPrefix(key, meetPrefix); ok {
		e.meet(ctx, name)
		return
	}
	w := e.lookup(key)
	if w == nil || ctx.Err() != nil {
		return
	}
	w.recording = recording
	if d := w.wanted(); d != w.tried {
		if d != nil && w.uid != "" && w.uid != d.uid {
			w.replace()
		}
		if d != nil {
			w.uid = d.uid
		}
		w.tried, w.failures = d, 0
		w.denied.reset()
	}
	wait, err := e.reconcile(ctx, w)
	switch {
	case err == nil:
		w.failures = 0
	case ctx.Err() != nil || errors.Is(err, errSuperseded):
		return // whoever superseded it has queued it
	default:
		e.log.V(1).Info("work is tried again", "work", key, "err", err.Error())
		retry := backoff(w.failures, firstRetry, longestRetry)
		w.failures++
		if wait == 0 || retry < wait {
			wait = retry
		}
	}
	if wait > 0 {
		e.queue.AddAfter(key, wait)
	}
}

// tell sends the status of a work as it is now.
func (e *Engine) tell(key string) {
	if w := e.lookup(key); w != nil {
		e.publish(w)
	}
}

func (e *Engine) publish(w *work) {
	w.telling.Lock()
	defer w.telling.Unlock()
	before := w.isComplete()
	since := e.table.news(w.key.String())
	s, uid, ok := w.status(e.table, metav1.Now())
	if !ok {
		return
	}
	if before && !w.isComplete() {
		e.queue.Add(w.key.String()) // what changed meanwhile is applied now
	}
	e.send(w, s, uid, since)
	e.metrics.told(w)
}

func (e *Engine) announceFinalized(w *work, d *desired) {
	w.telling.Lock()
	defer w.telling.Unlock()
	e.table.news(w.key.String())
	e.send(w, wire.WorkStatus{ObservedGeneration: d.generation, Finalized: true}, d.uid, time.Time{})
}

// send publishes a status that tells of events since a time. One that is too
// large to travel goes without its
// manifests; the work's own conditions still say what is wrong.
func (e *Engine) send(w *work, s wire.WorkStatus, uid string, since time.Time) {
	for {
		body, err := json.Marshal(s)
		if err == nil {
			err = e.reporter.Put(resource.Resource{Key: w.key.String(), UID: uid, Generation: s.ObservedGeneration, Body: body, Since: since})
		}
		if err == nil {
			return
		}
		if !errors.Is(err, resource.ErrTooLarge) || s.Manifests == nil {
			e.log.Error(err, "cannot publish a status", "work", w.key.String())
			return
		}
		s.Manifests = nil
	}
}

// serve hands the keys of a queue to do until it is shut down.
func serve(q workqueue.TypedInterface[string], do func(string)) {
	for {
		key, quit := q.Get()
		if quit {
			return
		}
		do(key)
		q.Done(key)
	}
}

// group of a definition's name, "<plural>.<group>".
func groupOf(definition string) string {
	for i := range definition {
		if definition[i] == '.' {
			return definition[i+1:]
		}
	}
	return ""
}

func definitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}
