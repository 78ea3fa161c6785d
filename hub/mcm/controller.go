// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// Controller brings views and actions to clusters and their results back. It is a
// manager.Runnable.
type Controller struct {
	cfg      Config
	options  options
	dialects map[string]*dialect
	views    *viewIndex
	access   *accessCache
	clusters *clusterIndex

	// queue has objects to bring into Sync, results those whose status is to be written.
	queue   workqueue.TypedRateLimitingInterface[objectKey]
	results workqueue.TypedRateLimitingInterface[objectKey]
	pacer   ratelimit.KeyedLimiter[objectKey]
	// ownWrites are the states that our last writes left; the cache may not have seen them.
	ownWrites  statuswriter.OwnWrites[objectKey, writtenState]
	logLimiter ratelimit.LogLimiter

	// templateSlots has a place for each large template that is held at a time.
	templateSlots chan struct{}

	mu sync.Mutex
	// pending is the latest outcome of each object that is to be written.
	pending map[objectKey]report // guarded by mu
	// renewals are the objects whose result was given up, to be asked for again.
	renewals map[objectKey]struct{} // guarded by mu
	// actions are those that are published, progress what clusters have said of them last.
	actions  map[objectKey]publishedAction // guarded by mu
	progress map[objectKey]report          // guarded by mu
	// unsent are actions whose templates could not be read when they were to be sent.
	unsent map[objectKey]struct{} // guarded by mu
	// initial are the objects that were there at the start and have not been seen to; nil
	// before they are known.
	initial map[objectKey]struct{} // guarded by mu
	// incomplete are, by cluster, the objects that have to be seen to before its sources
	// hold all there is.
	incomplete map[string]map[objectKey]struct{} // guarded by mu
}

// New declares views and actions in Sync.
func New(cfg Config) (*Controller, error) {
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	limiter := workqueue.DefaultTypedControllerRateLimiter[objectKey]
	c := &Controller{
		cfg: cfg, options: options{maxBytes: cfg.MaxResultBytes, showSecrets: cfg.ShowSecrets},
		templateSlots: make(chan struct{}, maxTemplateReads), dialects: map[string]*dialect{}, access: newAccessCache(cfg.Access), clusters: newClusterIndex(),
		views:   newViewIndex(func(cluster string) *resource.Source { return cfg.Sync.Source(cluster, wire.KindView) }),
		queue:   workqueue.NewTypedRateLimitingQueue(limiter()),
		results: workqueue.NewTypedRateLimitingQueue(limiter()),
		pending: map[objectKey]report{}, renewals: map[objectKey]struct{}{}, actions: map[objectKey]publishedAction{},
		progress: map[objectKey]report{}, unsent: map[objectKey]struct{}{}, incomplete: map[string]map[objectKey]struct{}{},
	}
	for _, d := range dialects() {
		c.dialects[d.name] = d
	}
	cfg.Rights.Add(c.reviewRights)
	cfg.Authors.Subscribe(c.requeueAll)
	cfg.Sync.Publish(wire.KindView, nil)
	cfg.Sync.Publish(wire.KindAction, c.loadAction)
	cfg.Sync.Mirror(wire.KindViewResult, resource.HubReceiver{Put: c.receiveViewResult, Keeps: true, About: wire.KindView})
	cfg.Sync.Mirror(wire.KindActionResult, resource.HubReceiver{Put: c.receiveActionResult, Keeps: true, About: wire.KindAction})
	return c, nil
}

// Start runs until ctx ends; the manager calls it once its caches are filled.
func (c *Controller) Start(ctx context.Context) error {
	if err := c.watch(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	cancel := c.cfg.Sessions.Subscribe(c.handleSession)
	defer cancel()
	var running sync.WaitGroup
	for range reconcilers {
		running.Go(func() { runQueue(c.queue, func(r objectKey) error { return c.reconcileAndMark(ctx, r) }) })
	}
	for range writers {
		running.Go(func() { runQueue(c.results, func(r objectKey) error { return c.writeReport(ctx, r) }) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.results.ShutDown()
	running.Wait()
	return nil
}

// reviewRights asks again about the rights of all authors.
func (c *Controller) reviewRights(ctx context.Context) error {
	changed, err := c.access.reviewAll(ctx)
	for _, r := range changed {
		c.queue.Add(r)
	}
	return err
}

// requeueAll reconciles all objects: who is the author of one depends on what is
// registered.
func (c *Controller) requeueAll() {
	for _, r := range c.clusters.allObjects() {
		c.queue.Add(r)
	}
}

// runQueue handles what is in a queue until that is shut down.
func runQueue(q workqueue.TypedRateLimitingInterface[objectKey], handle func(objectKey) error) {
	for {
		r, shutdown := q.Get()
		if shutdown {
			return
		}
		if err := handle(r); err != nil {
			q.AddRateLimited(r)
		} else {
			q.Forget(r)
		}
		q.Done(r)
	}
}

// eventType is what happened to an object.
type eventType int

const (
	// initialEvent is of what was there at the start.
	initialEvent eventType = iota
	changedEvent
	deletedEvent
)

// watch follows the objects and the clusters, and takes those that there are as the
// initial ones.
func (c *Controller) watch(ctx context.Context) error {
	var mu sync.Mutex
	initial := map[objectKey]struct{}{}
	for name, d := range c.dialects {
		err := c.watchKind(ctx, d.newObject(), func(obj client.Object, e eventType) {
			r := objectKey{Dialect: name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
			if e == initialEvent {
				mu.Lock()
				initial[r] = struct{}{}
				mu.Unlock()
			}
			c.queue.Add(r)
		})
		if err != nil {
			return err
		}
	}
	if err := c.watchKind(ctx, &clusterv1.ManagedCluster{}, c.handleCluster); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	c.mu.Lock()
	c.initial = maps.Clone(initial)
	c.mu.Unlock()
	return nil
}

// watchKind calls f with what happens to the objects of a kind; it returns when f has been
// called with all that there were.
func (c *Controller) watchKind(ctx context.Context, of client.Object, f func(obj client.Object, e eventType)) error {
	informer, err := c.cfg.Informers.GetInformer(ctx, of)
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	each := func(obj any, e eventType) {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(client.Object); ok {
			f(o, e)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, first bool) {
			if first {
				each(obj, initialEvent)
				return
			}
			each(obj, changedEvent)
		},
		UpdateFunc: func(before, after any) {
			if isRelevantChange(before, after) {
				each(after, changedEvent)
			}
		},
		DeleteFunc: func(obj any) { each(obj, deletedEvent) },
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", of, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

// relevantAnnotations are those on which the request of an object depends.
var relevantAnnotations = slices.Concat(requester.MCM.All(), requester.ACM.All(), []string{managedcluster.AnnotationManaged})

// isRelevantChange reports whether a change is more than one of the status.
func isRelevantChange(before, after any) bool {
	b, ok := before.(client.Object)
	a, same := after.(client.Object)
	if !ok || !same {
		return true
	}
	if a.GetGeneration() != b.GetGeneration() || a.GetUID() != b.GetUID() {
		return true
	}
	for _, key := range relevantAnnotations {
		if a.GetAnnotations()[key] != b.GetAnnotations()[key] {
			return true
		}
	}
	return (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil)
}

// markReconciled notes that an object is in Sync, as far as it belongs there.
func (c *Controller) markReconciled(r objectKey) {
	c.mu.Lock()
	delete(c.initial, r)
	for _, left := range c.incomplete {
		delete(left, r)
	}
	c.mu.Unlock()
	c.completeSources()
}

// completeSources completes the sources of clusters whose views and actions are all published, once they
// are: agents drop what is not.
func (c *Controller) completeSources() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.initial == nil || len(c.initial) > 0 {
		return // of which clusters these are nobody knows
	}
	for cluster, left := range c.incomplete {
		if len(left) > 0 {
			continue
		}
		delete(c.incomplete, cluster)
		if c.clusters.get(cluster).isServed() {
			c.cfg.Sync.Source(cluster, wire.KindView).Complete()
			c.cfg.Sync.Source(cluster, wire.KindAction).Complete()
		}
	}
}

// reconcileAndMark reconciles one object, and records that it has been.
func (c *Controller) reconcileAndMark(ctx context.Context, r objectKey) error {
	err := c.reconcile(ctx, r)
	if err == nil {
		c.markReconciled(r)
	} else if ctx.Err() == nil {
		c.cfg.Logger.Error(err, "object is tried again", "object", r.String())
	}
	return err
}

func (c *Controller) reconcile(ctx context.Context, r objectKey) error {
	d := c.dialects[r.Dialect]
	obj := d.newObject()
	err := c.cfg.Client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, obj)
	if apierrors.IsNotFound(err) || err == nil && obj.GetDeletionTimestamp() != nil {
		c.deleteObject(r)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", r, err)
	}
	in := d.parse(obj, c.options)
	c.clusters.setCluster(r, in.cluster)
	if d.sharesKind && !c.clusters.get(in.cluster).managed {
		c.withdraw(r)
		return nil
	}
	if in.action != nil && d.isAnswered(obj, c.lastState(d, r, obj)) {
		c.withdraw(r)
		return c.expire(ctx, d, r, obj)
	}
	if in.hasPlaceholder() {
		release, err := c.readUncached(ctx, d, obj, &in)
		if err != nil {
			return err
		}
		defer release()
	}
	f, err := c.validate(ctx, d, r, obj, &in)
	if err != nil {
		return err
	}
	if f == nil {
		f = c.publish(r, obj, in)
	}
	if f != nil {
		c.withdraw(r)
		c.reportHub(r, obj, in.cluster, outcome{failure: f})
	} else {
		c.setWaiting(d, r, obj, in.cluster)
	}
	return c.expire(ctx, d, r, obj)
}

// publish brings a view or an action into Sync, and returns why it cannot travel.
func (c *Controller) publish(r objectKey, obj client.Object, in request) *failure {
	var err error
	if in.view != nil {
		c.withdrawAction(r)
		err = c.views.set(r, obj.GetUID(), obj.GetGeneration(), in.cluster, *in.view)
	} else {
		err = c.publishAction(r, obj, in)
	}
	if err != nil {
		return &failure{message: err.Error()}
	}
	return nil
}

// validate returns why nothing is requested for an object, or completes the request.
func (c *Controller) validate(ctx context.Context, d *dialect, r objectKey, obj client.Object, in *request) (*failure, error) {
	if in.failure != nil {
		return in.failure, nil
	}
	by, err := requester.FromObject(obj, d.annotationKeys, c.cfg.Authors.UID())
	if err != nil {
		return &failure{message: err.Error()}, nil //nolint:nilerr // it is said of the object
	}
	requester := wire.Requester{User: by.User, Groups: by.Groups}
	// What is done is asked about each time, what is looked at when rights change.
	want := by.PermissionToCreate(d.resource, in.cluster)
	allowed, changed, err := c.access.isAllowed(ctx, r, want, in.action != nil)
	for _, other := range changed {
		if other != r {
			c.queue.Add(other)
		}
	}
	if err != nil {
		return nil, err
	}
	if !allowed {
		return &failure{message: want.Forbidden().Error()}, nil
	}
	// Only those who may ask are told which clusters there are.
	switch is := c.clusters.get(in.cluster); {
	case !is.exists:
		return &failure{message: fmt.Sprintf("cluster %q does not exist", in.cluster)}, nil
	case !is.managed:
		return &failure{message: fmt.Sprintf("cluster %q is not one of this hub", in.cluster)}, nil
	case !is.accepted:
		return &failure{message: fmt.Sprintf("cluster %q is not accepted", in.cluster)}, nil
	case in.view != nil:
		in.view.Requester = requester
	default:
		in.action.Requester = requester
	}
	return nil, nil
}

// setWaiting reports on an object without an answer that its cluster is not connected, or
// repeats the progress since it is: an agent sends nothing twice.
func (c *Controller) setWaiting(d *dialect, r objectKey, obj client.Object, cluster string) {
	if d.isAnswered(obj, c.lastState(d, r, obj)) {
		return
	}
	if c.cfg.Sessions.Connected(cluster) {
		c.repeatProgress(r)
		return
	}
	c.reportHub(r, obj, cluster, outcome{waiting: fmt.Sprintf("cluster %q is not connected", cluster)})
}

// reportHub reports what the hub has to say itself.
func (c *Controller) reportHub(r objectKey, obj client.Object, cluster string, o outcome) {
	c.enqueueReport(r, report{uid: obj.GetUID(), generation: obj.GetGeneration(), cluster: cluster, fromHub: true, outcome: o})
}

// deleteObject forgets an object that is no more.
func (c *Controller) deleteObject(r objectKey) {
	c.withdraw(r)
	c.access.delete(r)
	c.clusters.delete(r)
	c.pacer.Forget(r)
	c.ownWrites.Forget(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[r].releaseMemory()
	delete(c.pending, r)
	delete(c.renewals, r)
}

// withdraw takes the view or the action of an object out of Sync.
func (c *Controller) withdraw(r objectKey) {
	c.views.delete(r)
	c.withdrawAction(r)
}

// expire deletes an object whose time is over, or comes again when it is.
func (c *Controller) expire(ctx context.Context, d *dialect, r objectKey, obj client.Object) error {
	if d.remainingLife == nil {
		return nil
	}
	left, ends := d.remainingLife(obj, time.Now())
	if !ends {
		return nil
	}
	if left > 0 {
		c.queue.AddAfter(r, left)
		return nil
	}
	uid := obj.GetUID()
	err := c.cfg.Client.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", r, err)
	}
	return nil
}
