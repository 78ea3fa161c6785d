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

// everything is the one item of the queue of plans: they are made of all there is.
const everything = "everything"

type queue[K comparable] = workqueue.TypedRateLimitingInterface[K]

func newQueue[K comparable]() queue[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](retryFirst, retryLongest))
}

// Controller shares objects with clusters. It is a manager.Runnable.
type Controller struct {
	cfg Config

	// plan has everything when something has changed that plans are made of; writes has
	// what clusters ask for, reads the namespaces to be listed, evidence the feeds of which
	// objects have vanished, and status the SharedResources to be shown.
	plan     queue[string]
	writes   queue[writeKey]
	reads    queue[scopeKey]
	evidence queue[feedKey]
	status   queue[string]

	pace       ratelimit.Pacer[writeKey]
	statusPace ratelimit.Pacer[string]
	log        ratelimit.LogLimiter

	// life is that of the feeds, which run in running.
	life    context.Context //nolint:containedctx // feeds are started by events
	running sync.WaitGroup
	// carried are the definitions that are brought; of the one who plans.
	carried map[string]carried

	// mu guards all below, and all shares, feeds and scopes. It is taken while a mirror is
	// locked, and sources are locked while it is held.
	mu        sync.Mutex
	facts     facts
	specs     map[string]spec
	plans     map[string]planned
	shares    map[shareKey]*share
	byCluster map[string]map[string]*share // by cluster and SharedResource
	feeds     map[feedKey]*feed
	written   map[string]time.Time
	// looked: all SharedResources of the start were planned. complete: what is not
	// published is absent.
	looked, complete bool
}

// New declares shares in Sync.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		cfg: cfg, plan: newQueue[string](), writes: newQueue[writeKey](), reads: newQueue[scopeKey](),
		evidence: newQueue[feedKey](), status: newQueue[string](), carried: map[string]carried{},
		facts: facts{clusters: map[string]cluster{}, namespaces: map[string]namespace{}},
		specs: map[string]spec{}, plans: map[string]planned{}, shares: map[shareKey]*share{}, byCluster: map[string]map[string]*share{},
		feeds: map[feedKey]*feed{}, written: map[string]time.Time{},
	}
	cfg.Sync.Publish(wire.KindShare, c.loadShare)
	cfg.Sync.Publish(wire.KindSharedObject, c.load)
	// Before all shares are known it is not known either what clusters may ask for.
	cfg.Sync.Mirror(wire.KindSharedWrite, resource.HubReceiver{
		Put: c.receive, Keeps: true, Delete: c.withdrawn, Known: c.known, After: wire.KindSharedObject,
	})
	cfg.Sync.Mirror(wire.KindShareState, resource.HubReceiver{Put: c.putState, About: wire.KindShare, After: wire.KindShare})
	return c, nil
}

// Start runs until ctx ends; the manager calls it once its caches are filled.
func (c *Controller) Start(ctx context.Context) error {
	defer c.shutDown()
	if err := c.watch(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	c.life = ctx
	follower := &watcher.Follower{
		Feed: watcher.FeedOf(c.cfg.Dynamic.Resource(definitionsResource()), nil), Sink: &definitions{controller: c}, Log: c.cfg.Logger,
	}
	c.running.Go(func() { follower.Run(ctx) })
	cancel := c.cfg.Sessions.Subscribe(c.session)
	defer cancel()
	work(c, c.plan, 1, func(string) error { return c.replan(ctx) })
	work(c, c.writes, executors, func(key writeKey) error { return c.execute(ctx, key) })
	work(c, c.reads, readers, func(key scopeKey) error { return c.readScope(ctx, key) })
	work(c, c.evidence, witnesses, func(key feedKey) error { return c.witness(ctx, key) })
	work(c, c.status, writers, func(name string) error { return c.writeStatus(ctx, name) })
	<-ctx.Done()
	return nil
}

func (c *Controller) shutDown() {
	c.plan.ShutDown()
	c.writes.ShutDown()
	c.reads.ShutDown()
	c.evidence.ShutDown()
	c.status.ShutDown()
	c.running.Wait()
}

// work has workers handle what is in a queue until that is shut down.
func work[K comparable](c *Controller, q queue[K], workers int, handle func(K) error) {
	for range workers {
		c.running.Go(func() {
			for next(q, handle, c.failed) {
			}
		})
	}
}

// next handles one item; false at the end.
func next[K comparable](q queue[K], handle func(K) error, failed func(error)) bool {
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

func (c *Controller) failed(err error) {
	c.cfg.Logger.V(1).Info("shared objects: it is tried again", "err", err.Error())
}

// watch follows what plans are made of; it returns when all there is has been seen.
func (c *Controller) watch(ctx context.Context) error {
	system := &corev1.Namespace{}
	if err := c.cfg.Live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return fmt.Errorf("namespace %s: %w", metav1.NamespaceSystem, err)
	}
	c.facts.hubUID = string(system.UID)
	for of, f := range map[client.Object]func(obj client.Object, gone bool){
		&v1alpha1.SharedResource{}: c.resourceChanged, &clusterv1.ManagedCluster{}: c.clusterChanged, &corev1.Namespace{}: c.namespaceChanged,
	} {
		if err := c.follow(ctx, of, f); err != nil {
			return err
		}
	}
	return nil
}

// follow calls f with what happens to the objects of a kind; it returns when f has been
// called with all that there were.
func (c *Controller) follow(ctx context.Context, of client.Object, f func(obj client.Object, gone bool)) error {
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

// resourceChanged plans anew when a spec has changed, and shows what is known when a
// status has.
func (c *Controller) resourceChanged(obj client.Object, gone bool) {
	r, ok := obj.(*v1alpha1.SharedResource)
	if !ok {
		return
	}
	c.status.Add(r.Name)
	now := spec{
		uid: r.UID, generation: r.Generation, confirm: r.Annotations[v1alpha1.AnnotationConfirm], ends: gone || r.DeletionTimestamp != nil,
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
	c.plan.Add(everything)
}

// spec tells whether a SharedResource is to be planned anew.
type spec struct {
	uid        types.UID
	generation int64
	confirm    string
	ends       bool
}

func (c *Controller) clusterChanged(obj client.Object, gone bool) {
	record, ok := obj.(*clusterv1.ManagedCluster)
	if !ok {
		return
	}
	serves := !gone && managedcluster.Selectable(record)
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.facts.clusters[record.Name]
	if serves == was && (!was || maps.Equal(last.labels, record.Labels)) {
		return
	}
	if serves {
		c.facts.clusters[record.Name] = cluster{labels: record.Labels}
	} else {
		delete(c.facts.clusters, record.Name)
	}
	c.plan.Add(everything)
}

func (c *Controller) namespaceChanged(obj client.Object, gone bool) {
	ns := namespace{uid: obj.GetUID(), terminating: obj.GetDeletionTimestamp() != nil}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, was := c.facts.namespaces[obj.GetName()]
	if gone == !was && last == ns {
		return
	}
	if gone {
		delete(c.facts.namespaces, obj.GetName())
	} else {
		c.facts.namespaces[obj.GetName()] = ns
	}
	c.plan.Add(everything)
}

// session publishes everything to a cluster that has connected, if its sources are new:
// Sync forgets a cluster that is no more.
func (c *Controller) session(name string, connected bool) {
	if !connected {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.byCluster[name] {
		s.republish()
	}
	c.completeOne(name)
}

// replan decides anew what is shared with whom.
func (c *Controller) replan(ctx context.Context) error {
	list := &v1alpha1.SharedResourceList{}
	if err := c.cfg.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list SharedResources: %w", err)
	}
	c.mu.Lock()
	known, brought := c.facts.known(), c.facts.brought(list.Items)
	c.mu.Unlock()
	if !known {
		return nil
	}
	if err := c.carry(ctx, brought); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	published := map[string][]string{}
	for key := range c.shares {
		published[key.name] = append(published[key.name], key.cluster)
	}
	p := planner{facts: &c.facts, published: published, carried: c.carried}
	c.adopt(p.plan(list.Items))
	return nil
}

// adopt makes what is shared what is planned; c.mu is held.
func (c *Controller) adopt(plans map[string]planned) {
	for name := range c.plans {
		if _, ok := plans[name]; !ok {
			delete(c.written, name)
			c.statusPace.Forget(name)
		}
	}
	c.plans = plans
	for key, s := range c.shares {
		if next, ok := plans[key.name].targets[key.cluster]; !ok || next.uid != s.target.uid {
			c.remove(s)
		}
	}
	for name, p := range plans {
		for cluster, next := range p.targets {
			c.give(shareKey{cluster: cluster, name: name}, next)
		}
		c.status.Add(name)
	}
	c.looked = true
	c.settle()
	c.completeAll()
}

// give has a cluster have a share; c.mu is held.
func (c *Controller) give(key shareKey, next target) {
	s := c.shares[key]
	if s == nil {
		s = &share{
			controller: c, name: key.name, cluster: key.cluster,
			entries: map[string]entry{}, tombstones: map[string]tombstone{}, records: map[string]*record{}, large: map[string]int{},
			holding: holding{account: c.cfg.Memory.Account(key.cluster), byName: map[string]kept{}}, waiting: map[string]wire.SharedSize{},
		}
		c.shares[key] = s
		if c.byCluster[key.cluster] == nil {
			c.byCluster[key.cluster] = map[string]*share{}
		}
		c.byCluster[key.cluster][key.name] = s
	}
	if !reflect.DeepEqual(s.target, next) {
		s.become(next)
	}
}

// remove ends a share; c.mu is held.
func (c *Controller) remove(s *share) {
	s.withdraw()
	delete(c.shares, s.key())
	delete(c.byCluster[s.cluster], s.name)
	if len(c.byCluster[s.cluster]) == 0 {
		delete(c.byCluster, s.cluster)
	}
}

// settle says of all clusters that everything is published, once it is: they drop what is
// not. That takes all SharedResources of the start; c.mu is held.
func (c *Controller) settle() {
	if c.complete || !c.looked {
		return
	}
	for _, s := range c.shares {
		if !s.settled() {
			return
		}
	}
	c.complete = true
	c.completeAll()
}

// completeAll says it of clusters that are new, too; c.mu is held.
func (c *Controller) completeAll() {
	for name := range c.facts.clusters {
		c.completeOne(name)
	}
}

// completeOne says it of one cluster, if it is so; c.mu is held.
func (c *Controller) completeOne(name string) {
	if _, serves := c.facts.clusters[name]; !serves || !c.complete {
		return
	}
	c.cfg.Sync.Source(name, wire.KindShare).Complete()
	c.cfg.Sync.Source(name, wire.KindSharedObject).Complete()
}
