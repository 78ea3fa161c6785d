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
	"github.com/spokelet/spokelet/agent/work/inventory"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/agent/work/speccache"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// Pause before a failed work is tried again; a change of the work, or of what
	// it waits for, ends it.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = time.Minute
	// reportWorkers compose statuses that no executor is about to compose.
	reportWorkers = 2
)

// Engine executes the works of one hub in this cluster.
type Engine struct {
	cfg       Config
	log       logr.Logger
	spoke     *spokeClient
	inventory *inventory.Inventory
	source    *resource.Source
	reporter  Reporter
	receiver  resource.Receiver
	mirror    *resource.Mirror
	rules     *conditionrules.Compiler
	// executors says what works may do in somebody's name.
	executors *executor.Checker
	queue     workqueue.TypedDelayingInterface[string]
	reports   workqueue.TypedInterface[string]
	policies  map[string]Policy
	metrics   *metrics
	specs     *speccache.Cache
	records   *record.Queue

	// watches counts followers; they run under lifetime.
	watches sync.WaitGroup
	runCtx  context.Context

	mu sync.Mutex
	// All below are guarded by mu.
	works map[string]*work
	// anchors finds a work by its dialect and the name of its anchor.
	anchors map[string]*work
	// isSynced is set once the hub has told all it wants.
	isSynced bool
	// hubHash is that of the hub, empty until it is known.
	hubHash string
	// foreignAnchors are anchors of other agents, which are looked at once.
	foreignAnchors map[types.UID]struct{}
	// unservedKinds holds, by API group, the works with a kind that is not served.
	unservedKinds   map[string]map[string]struct{}
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
	s, err := newSpokeClient(cfg.REST, cfg.Impersonate)
	if err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	e := &Engine{
		cfg:           cfg,
		log:           cfg.Logger,
		spoke:         s,
		source:        resource.NewSource(wire.KindWorkStatus),
		queue:         workqueue.NewTypedDelayingQueue[string](),
		reports:       workqueue.NewTyped[string](),
		policies:      map[string]Policy{},
		hubHash:       cfg.HubHash,
		rules:         conditionrules.NewCompiler(),
		works:         map[string]*work{},
		anchors:       map[string]*work{},
		unservedKinds: map[string]map[string]struct{}{},

		foreignAnchors: map[types.UID]struct{}{},
	}
	for _, d := range cfg.Dialects {
		e.policies[d] = allPolicies()[d]
	}
	e.records = record.NewQueue()
	e.inventory = inventory.New(e.watchScope)
	e.receiver = resource.Receiver{Put: e.putWork, Delete: e.deleteWork, Synced: e.handleSynced}
	e.mirror = resource.NewMirror(wire.KindWork, e.receiver)
	if e.reporter = cfg.Reporter; e.reporter == nil {
		e.reporter = e.source
	}
	e.executors, err = executor.New(executor.Config{REST: cfg.REST, Caches: cfg.ExecutorCaches, Changed: e.requeueForReview, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	if e.metrics, err = newMetrics(cfg.Registerer, e.countByState); err != nil {
		return nil, fmt.Errorf("work engine: %w", err)
	}
	if e.specs, err = speccache.NewCache(cfg.REST, cfg.Namespace); err != nil {
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
	e.runCtx = ctx
	defer e.queue.ShutDown()
	defer e.reports.ShutDown()
	defer e.executors.Close()
	e.restore(ctx)
	e.reporter.Complete()
	var wg sync.WaitGroup
	for range e.cfg.Workers {
		wg.Go(func() { runWorker(e.queue, func(key string) { e.execute(ctx, key) }) })
	}
	for range reportWorkers {
		wg.Go(func() { runWorker(e.reports, e.reportStatus) })
	}
	wg.Go(func() { e.specs.Run(ctx, e.log) })
	wg.Go(func() { e.records.Run(ctx, e.queue.Add) })
	e.watchAnchors()
	<-ctx.Done()
	e.queue.ShutDown()
	e.reports.ShutDown()
	wg.Wait()
	e.watches.Wait()
	e.spoke.close()
	return nil
}

// store reads and writes the anchors of a dialect.
func (e *Engine) store(p Policy) *record.Store {
	return &record.Store{
		Client: e.spoke.dynamic.Resource(p.Anchor.Resource), Kind: p.Anchor, FieldManager: p.FieldManager,
		Owner: record.Owner{HubID: e.cfg.HubID, AgentID: e.cfg.AgentID, HubHash: e.cfg.HubHash},
	}
}

// ensureWork returns the work of a key, made if need be; e.mu is held.
func (e *Engine) ensureWork(p Policy, key wire.WorkKey) *work {
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

// putWork takes what the hub wants of one work.
func (e *Engine) putWork(r resource.Resource) {
	if err := e.setSpec(r, false); err != nil {
		e.log.Error(err, "hub sent a work that cannot be read", "work", r.Key)
		return
	}
	e.specs.Put(r)
}

// restoreWork takes what the hub wanted before we were started.
func (e *Engine) restoreWork(r resource.Resource) {
	if err := e.setSpec(r, true); err != nil {
		e.log.Error(err, "the copy of a work cannot be read", "work", r.Key)
	}
}

func (e *Engine) setSpec(r resource.Resource, copied bool) error {
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
	if err := e.validateWork(key, body); err != nil {
		return err
	}
	d := &plan.Spec{
		UID: r.UID, Generation: body.Generation, IsDeleting: body.Deleting, IsCached: copied, Received: time.Now(),
		IsSuspended: body.Suspended, AppliedGeneration: body.AppliedGeneration, ReportsDrift: body.ReportDrift,
		HubHash: body.HubHash, Labels: body.Labels, ReportsHealth: body.Healthy,
		ManifestWork: body.Spec,
	}
	d.ManifestWork.Workload.Manifests = nil
	if n := len(body.Spec.Workload.Manifests); n > manifest.MaxCount {
		d.Refusal = &manifest.TooManyError{Manifests: n}
	} else {
		d.Manifests = manifest.ParseAll(body.Spec.Workload.Manifests)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.HubHash != "" && d.HubHash != e.hubHash && (!copied || e.hubHash == "") {
		e.hubHash = d.HubHash
	}
	w := e.ensureWork(p, key)
	w.mu.Lock()
	defer w.mu.Unlock()
	if copied && w.spec != nil {
		return nil // the hub was faster
	}
	w.spec, w.unknownSince = d, time.Time{}
	e.queue.Add(r.Key)
	return nil
}

// validateWork refuses works that are not this cluster's.
func (e *Engine) validateWork(key wire.WorkKey, body wire.Work) error {
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

// deleteWork: the work is no more on the hub.
func (e *Engine) deleteWork(key string) {
	if w := e.lookup(key); w != nil {
		w.markUnknown(time.Now())
		e.queue.Add(key)
	}
}

// handleSynced: the hub has told all it wants. What it did not mention it does not know.
func (e *Engine) handleSynced() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isSynced = true
	now := time.Now()
	for key, w := range e.works {
		if w.isUnconfirmed() {
			w.markUnknown(now)
			e.queue.Add(key)
		}
	}
}

// execute runs one work once and decides when to look again.
func (e *Engine) execute(ctx context.Context, key string) {
	recording := e.records.Start(key)
	defer e.records.Finish(recording)
	if name, ok := strings.CutPrefix(key, newAnchorPrefix); ok {
		e.adoptNewAnchor(ctx, name)
		return
	}
	w := e.lookup(key)
	if w == nil || ctx.Err() != nil {
		return
	}
	w.recordNow = recording
	if d := w.currentSpec(); d != w.attempted {
		if d != nil && w.uid != "" && w.uid != d.UID {
			w.resetStatus()
		}
		if d != nil {
			w.uid = d.UID
		}
		w.attempted, w.failures = d, 0
		w.denials.reset()
	}
	wait, err := e.reconcile(ctx, w)
	switch {
	case err == nil:
		w.failures = 0
	case ctx.Err() != nil || errors.Is(err, errSuperseded):
		return // whoever superseded it has queued it
	default:
		e.log.V(1).Info("work is tried again", "work", key, "err", err.Error())
		retry := backoff(w.failures, minRetryDelay, maxRetryDelay)
		w.failures++
		if wait == 0 || retry < wait {
			wait = retry
		}
	}
	if wait > 0 {
		e.queue.AddAfter(key, wait)
	}
}

// requeue queues the works that a change of the inventory concerns.
func (e *Engine) requeue(r inventory.Requeue) {
	for _, key := range r.Works {
		e.queue.Add(key)
	}
	for _, key := range r.Statuses {
		e.reports.Add(key)
	}
}

// reportStatus sends the status of a work as it is now.
func (e *Engine) reportStatus(key string) {
	if w := e.lookup(key); w != nil {
		e.publishStatus(w)
	}
}

func (e *Engine) publishStatus(w *work) {
	w.publishMu.Lock()
	defer w.publishMu.Unlock()
	before := w.isComplete()
	since := e.inventory.TakeFirstEvent(w.key.String())
	s, uid, ok := w.status(e.inventory, metav1.Now())
	if !ok {
		return
	}
	if before && !w.isComplete() {
		e.queue.Add(w.key.String()) // what changed meanwhile is applied now
	}
	e.sendStatus(w, s, uid, since)
	e.metrics.observeStatus(w)
}

func (e *Engine) publishFinalized(w *work, d *plan.Spec) {
	w.publishMu.Lock()
	defer w.publishMu.Unlock()
	e.inventory.TakeFirstEvent(w.key.String())
	e.sendStatus(w, wire.WorkStatus{ObservedGeneration: d.Generation, Finalized: true}, d.UID, time.Time{})
}

// sendStatus publishes a status that tells of events since a time. One that is too
// large to travel goes without its
// manifests; the work's own conditions still say what is wrong.
func (e *Engine) sendStatus(w *work, s wire.WorkStatus, uid string, since time.Time) {
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

// runWorker hands the keys of a queue to do until it is shut down.
func runWorker(q workqueue.TypedInterface[string], do func(string)) {
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
func definitionGroup(definition string) string {
	for i := range definition {
		if definition[i] == '.' {
			return definition[i+1:]
		}
	}
	return ""
}

func definitionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}
