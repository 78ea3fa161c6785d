// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/managedcluster"
	"github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/watcher"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// planKey is the only item of the plan queue: plans are made of everything.
const planKey = "everything"

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

func newQueue[K comparable]() queue[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, longestRetry))
}

// Controller shares objects with clusters. It is a manager.Runnable.
type Controller struct {
	cfg Config

	// planQueue has planKey when the input of plans has changed; writeQueue the writes that
	// clusters request, listQueue the namespaces to list, deletionQueue the watches with
	// deletions to verify, and statusQueue the SharedResources whose status may have changed.
	planQueue     queue[string]
	writeQueue    queue[writeKey]
	listQueue     queue[scopeKey]
	deletionQueue queue[watchKey]
	statusQueue   queue[string]

	writeLimiter  ratelimit.KeyedLimiter[writeKey]
	statusLimiter ratelimit.KeyedLimiter[string]
	logLimiter    ratelimit.LogLimiter

	// runCtx is the context of the watches, which run in running.
	runCtx  context.Context //nolint:containedctx // feeds are started by events
	running sync.WaitGroup
	// sentDefinitions are the definitions that are sent to clusters; of the plan worker alone.
	sentDefinitions map[string]sentDefinition

	// mu guards all below, and all shares, watches and scopes. It is taken while a mirror is
	// locked, and sources are locked while it is held.
	mu            sync.Mutex
	state         hubState
	specs         map[string]spec
	plans         map[string]resourcePlan
	shares        map[shareKey]*share
	byCluster     map[string]map[string]*share // by cluster and SharedResource
	watches       map[watchKey]*objectWatch
	statusWritten map[string]time.Time
	// isPlanned: all SharedResources of the start were planned. isComplete: what is not
	// published is absent.
	isPlanned, isComplete bool
}

// New returns a Controller and declares the kinds of shares in Sync.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, planQueue: newQueue[string](), writeQueue: newQueue[writeKey](), listQueue: newQueue[scopeKey](),
		deletionQueue: newQueue[watchKey](), statusQueue: newQueue[string](), sentDefinitions: map[string]sentDefinition{},
		state: hubState{clusters: map[string]cluster{}, namespaces: map[string]namespace{}},
		specs: map[string]spec{}, plans: map[string]resourcePlan{}, shares: map[shareKey]*share{}, byCluster: map[string]map[string]*share{},
		watches: map[watchKey]*objectWatch{}, statusWritten: map[string]time.Time{},
	}
	cfg.Sync.Publish(wire.KindShare, c.loadShare)
	cfg.Sync.Publish(wire.KindSharedObject, c.loadObject)
	// Before all shares are known, so is not which writes clusters may request.
	cfg.Sync.Mirror(wire.KindSharedWrite, resource.HubReceiver{
		Put: c.handleWrite, Keeps: true, Delete: c.handleWriteWithdrawal, Known: c.isKnownWrite, After: wire.KindSharedObject,
	})
	cfg.Sync.Mirror(wire.KindShareState, resource.HubReceiver{Put: c.handleState, About: wire.KindShare, After: wire.KindShare})
	return c, nil
}

// Start runs until ctx ends; the manager calls it once its caches are filled.
func (c *Controller) Start(ctx context.Context) error {
	defer c.shutDown()
	if err := c.startWatches(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.runCtx = ctx
	follower := &watcher.Watcher{
		ListWatch: watcher.NewListWatch(c.cfg.Dynamic.Resource(definitionsResource()), nil), Handler: &definitionSink{controller: c}, Log: c.cfg.Logger,
	}
	c.running.Go(func() { follower.Run(ctx) })
	cancel := c.cfg.Sessions.Subscribe(c.handleSession)
	defer cancel()
	startWorkers(c, c.planQueue, 1, func(string) error { return c.updatePlans(ctx) })
	startWorkers(c, c.writeQueue, writeWorkers, func(key writeKey) error { return c.executeWrite(ctx, key) })
	startWorkers(c, c.listQueue, listWorkers, func(key scopeKey) error { return c.listScope(ctx, key) })
	startWorkers(c, c.deletionQueue, deletionWorkers, func(key watchKey) error { return c.verifyDeletions(ctx, key) })
	startWorkers(c, c.statusQueue, statusWorkers, func(name string) error { return c.writeStatus(ctx, name) })
	<-ctx.Done()
	return nil
}

func (c *Controller) shutDown() {
	c.planQueue.ShutDown()
	c.writeQueue.ShutDown()
	c.listQueue.ShutDown()
	c.deletionQueue.ShutDown()
	c.statusQueue.ShutDown()
	c.running.Wait()
}

// startWorkers has workers handle the items of a queue until that is shut down.
func startWorkers[K comparable](c *Controller, q queue[K], workers int, handle func(K) error) {
	for range workers {
		c.running.Go(func() {
			for processNextItem(q, handle, c.logRetry) {
			}
		})
	}
}

// processNextItem handles one item; it returns false when the queue is shut down.
func processNextItem[K comparable](q queue[K], handle func(K) error, failed func(error)) bool {
	key, shutdown := q.Get()
	if shutdown {
		return false
	}
	defer q.Done(key)
	if err := handle(key); err != nil {
		failed(err)
		q.AddRateLimited(key)
		return true
	}
	q.Forget(key)
	return true
}

func (c *Controller) logRetry(err error) {
	c.cfg.Logger.V(1).Info("Shared objects: will retry", "err", err.Error())
}

// startWatches watches the input of plans; it returns when all existing objects were handled.
func (c *Controller) startWatches(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := c.cfg.Live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("namespace %s: %w", metav1.NamespaceSystem, err)
	}
	c.state.hubUID = string(system.UID)
	for of, f := range map[client.Object]func(obj client.Object, gone bool){
		&v1alpha1.SharedResource{}: c.handleSharedResource, &clusterv1.ManagedCluster{}: c.handleCluster, &corev1.Namespace{}: c.handleNamespace,
	} {
		if err := c.watchKind(ctx, of, f); err != nil {
			return err
		}
	}
	return nil
}

// watchKind calls f with every change of the objects of a kind; it returns when f has been
// called with all existing objects.
func (c *Controller) watchKind(ctx context.Context, of client.Object, f func(obj client.Object, gone bool)) error {
	informer, err := c.cfg.Informers.GetInformer(ctx, of)
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	each := func(obj any, gone bool) {
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f(o, gone)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { each(obj, false) },
		UpdateFunc: func(_, obj any) { each(obj, false) },
		DeleteFunc: func(obj any) { each(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

// handleSharedResource enqueues a new plan when a spec has changed, and the status in any
// case.
func (c *Controller) handleSharedResource(obj client.Object, gone bool) {
	r, ok := obj.(*v1alpha1.SharedResource)
	if !ok {
		return
	}
	c.statusQueue.Add(r.Name)
	now := spec{
		uid: r.UID, generation: r.Generation, confirm: r.Annotations[v1alpha1.AnnotationConfirm], isDeleting: gone || r.DeletionTimestamp != nil,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.specs[r.Name] == now {
		return
	}
	if gone {
		delete(c.specs, r.Name)
	} else {
		c.specs[r.Name] = now
	}
	c.planQueue.Add(planKey)
}

// spec is the part of a SharedResource that plans depend on.
type spec struct {
	uid        types.UID
	generation int64
	confirm    string
	isDeleting bool
}

func (c *Controller) handleCluster(obj client.Object, gone bool) {
	record, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	serves := !gone && managedcluster.IsSelectable(record)
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.state.clusters[record.Name]
	if serves == was && (!was || maps.Equal(last.labels, record.Labels)) {
		return
	}
	if serves {
		c.state.clusters[record.Name] = cluster{labels: record.Labels}
	} else {
		delete(c.state.clusters, record.Name)
	}
	c.planQueue.Add(planKey)
}

func (c *Controller) handleNamespace(obj client.Object, gone bool) {
	ns := namespace{uid: obj.GetUID(), terminating: obj.GetDeletionTimestamp() != nil}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.state.namespaces[obj.GetName()]
	if gone == !was && last == ns {
		return
	}
	if gone {
		delete(c.state.namespaces, obj.GetName())
	} else {
		c.state.namespaces[obj.GetName()] = ns
	}
	c.planQueue.Add(planKey)
}

// handleSession publishes everything to a cluster that has connected, if its sources are new:
// Sync forgets clusters that are gone.
func (c *Controller) handleSession(name string, connected bool) {
	if !connected {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.byCluster[name] {
		s.republish()
	}
	c.completeCluster(name)
}

// updatePlans plans anew which objects are shared with which cluster.
func (c *Controller) updatePlans(ctx context.Context) error {
	list := &v1alpha1.SharedResourceList{}
	if err := c.cfg.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list SharedResources: %w", err)
	}
	c.mu.Lock()
	known, brought := c.state.isKnown(), c.state.definitionsToSend(list.Items)
	c.mu.Unlock()
	if !known {
		return nil
	}
	if err := c.readDefinitions(ctx, brought); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	published := map[string][]string{}
	for key := range c.shares {
		published[key.name] = append(published[key.name], key.cluster)
	}
	p := planner{state: &c.state, published: published, sentDefinitions: c.sentDefinitions}
	c.applyPlans(p.plan(list.Items))
	return nil
}

// applyPlans adds, changes and removes shares as planned; c.mu is held.
func (c *Controller) applyPlans(plans map[string]resourcePlan) {
	for name := range c.plans {
		if _, ok := plans[name]; !ok {
			delete(c.statusWritten, name)
			c.statusLimiter.Forget(name)
		}
	}
	c.plans = plans
	for key, s := range c.shares {
		if next, ok := plans[key.name].targets[key.cluster]; !ok || next.uid != s.target.uid {
			c.removeShare(s)
		}
	}
	for name, p := range plans {
		for cluster, next := range p.targets {
			c.setTarget(shareKey{cluster: cluster, name: name}, next)
		}
		c.statusQueue.Add(name)
	}
	c.isPlanned = true
	c.checkComplete()
	c.completeClusters()
}

// setTarget sets the target of a cluster's share, which it creates if needed; c.mu is held.
func (c *Controller) setTarget(key shareKey, next target) {
	s := c.shares[key]
	if s == nil {
		s = &share{
			controller: c, name: key.name, cluster: key.cluster,
			entries: map[string]entry{}, tombstones: map[string]tombstone{}, requests: map[string]*writeRequest{}, large: map[string]int{},
			use: memoryUse{account: c.cfg.Memory.Account(key.cluster), objects: map[string]objectUse{}}, beyondQuota: map[string]wire.SharedSize{},
		}
		c.shares[key] = s
		if c.byCluster[key.cluster] == nil {
			c.byCluster[key.cluster] = map[string]*share{}
		}
		c.byCluster[key.cluster][key.name] = s
	}
	if !reflect.DeepEqual(s.target, next) {
		s.setTarget(next)
	}
}

// removeShare withdraws and deletes a share; c.mu is held.
func (c *Controller) removeShare(s *share) {
	s.withdraw()
	delete(c.shares, s.key())
	delete(c.byCluster[s.cluster], s.name)
	if len(c.byCluster[s.cluster]) == 0 {
		delete(c.byCluster, s.cluster)
	}
}

// checkComplete marks the sources of all clusters as complete, once all shares of the start
// are published: clusters then drop what is not; c.mu is held.
func (c *Controller) checkComplete() {
	if c.isComplete || !c.isPlanned {
		return
	}
	for _, s := range c.shares {
		if !s.isSettled() {
			return
		}
	}
	c.isComplete = true
	c.completeClusters()
}

// completeClusters does so for new clusters, too; c.mu is held.
func (c *Controller) completeClusters() {
	for name := range c.state.clusters {
		c.completeCluster(name)
	}
}

// completeCluster marks the sources of one cluster as complete, if they are; c.mu is held.
func (c *Controller) completeCluster(name string) {
	if _, serves := c.state.clusters[name]; !serves || !c.isComplete {
		return
	}
	c.cfg.Sync.Source(name, wire.KindShare).Complete()
	c.cfg.Sync.Source(name, wire.KindSharedObject).Complete()
}
