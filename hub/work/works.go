// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/spokelet/spokelet/api/multicluster/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/hub/pace"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// fieldOwner of what the hub writes to works.
	fieldOwner = client.FieldOwner("spokelet-hub")
	// annotationManaged marks the ManagedClusters that are ours.
	annotationManaged = "spokelet.io/managed"
	// reconcilers and writers bound what is done at once.
	reconcilers = 16
	writers     = 16
	// maxWarned bounds the memory of which works a warning was given for.
	maxWarned = 10_000
)

// Replicator is the hub's end of Sync.
type Replicator interface {
	Publish(kind string, load resource.HubLoad)
	Mirror(kind string, r resource.HubReceiver)
	Source(cluster, kind string) *resource.Source
	Forget(cluster string)
}

// Config holds what Works needs.
type Config struct {
	// Sync replicates works and statuses. Required.
	Sync Replicator
	// Client reads Works and ManagedClusters from the manager's cache, and
	// writes. Its rate must not be limited: priority and fairness is the limiter.
	Client client.Client
	// Events are reported on Works.
	Events     events.EventRecorder
	Logger     logr.Logger
	Registerer prometheus.Registerer
}

// Works reconciles multicluster Works in the namespaces of clusters.
type Works struct {
	sync    Replicator
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	log     logr.Logger
	metrics *metrics
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// pace spaces the statuses of a work that a spoke changes without end.
	pace pace.Pacer[types.NamespacedName]

	mu sync.Mutex
	// pending is the latest report of each work that is to be written; guarded by mu.
	pending map[types.NamespacedName]report
	// written is the version that our last write of a work made, until the cache
	// is seen to have it or the work is gone; guarded by mu.
	written map[types.NamespacedName]string
	// warned holds the works that lie where no cluster is; guarded by mu.
	warned map[types.UID]struct{}
}

// New declares the kinds of works in Sync; SetupWithManager starts the rest.
func New(c Config) (*Works, error) {
	if c.Sync == nil || c.Client == nil || c.Events == nil {
		return nil, errors.New("works need Sync, Client and Events")
	}
	m, err := newMetrics(c.Registerer)
	if err != nil {
		return nil, err
	}
	w := &Works{
		sync: c.Sync, client: c.Client, live: c.Client, events: c.Events, log: c.Logger, metrics: m,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		pending: map[types.NamespacedName]report{},
		written: map[types.NamespacedName]string{},
		warned:  map[types.UID]struct{}{},
	}
	c.Sync.Publish(wire.KindWork, w.load)
	c.Sync.Mirror(wire.KindWorkStatus, resource.HubReceiver{Put: w.receive, About: wire.KindWork})
	return w, nil
}

// SetupWithManager adds the controllers and the writer of statuses.
func (w *Works) SetupWithManager(mgr ctrl.Manager) error {
	w.live = mgr.GetAPIReader()
	err := ctrl.NewControllerManagedBy(mgr).Named("work").
		For(&v1alpha1.Work{}, builder.WithPredicates(wanted())).
		WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers}).
		Complete(w)
	if err != nil {
		return fmt.Errorf("work controller: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("work-cluster").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Complete(clusters{w})
	if err != nil {
		return fmt.Errorf("work cluster controller: %w", err)
	}
	return mgr.Add(w)
}

// wanted passes what changes what a spoke is asked for; our own writes of
// statuses do not come back.
func wanted() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetDeletionTimestamp() != nil || !controllerutil.ContainsFinalizer(o, v1alpha1.WorkFinalizer)
	}))
}

// Reconcile publishes one work.
func (w *Works) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	err := w.publish(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 1}, nil // the cache lags behind: looked at again, quietly
	}
	return ctrl.Result{}, err
}

func (w *Works) publish(ctx context.Context, name types.NamespacedName) error {
	managed, known, err := w.cluster(ctx, name.Namespace)
	if err != nil {
		return err
	}
	var work v1alpha1.Work
	switch err := w.client.Get(ctx, name, &work); {
	case apierrors.IsNotFound(err):
		w.gone(name)
		if managed {
			w.source(name.Namespace).Delete(keyOf(name).String())
		}
		return nil
	case err != nil:
		return fmt.Errorf("get work: %w", err)
	}
	switch leaving := work.DeletionTimestamp != nil; {
	case leaving && !known:
		return w.dropFinalizer(ctx, &work) // its cluster is no more: nobody will ever answer
	case !managed:
		w.warn(&work)
		return nil
	case leaving && !controllerutil.ContainsFinalizer(&work, v1alpha1.WorkFinalizer):
		w.source(name.Namespace).Delete(keyOf(name).String())
		return nil
	case !leaving:
		if err := w.addFinalizer(ctx, &work); err != nil {
			return err
		}
	}
	return w.send(&work)
}

// gone forgets what was kept for a work that is no more.
func (w *Works) gone(name types.NamespacedName) {
	w.pace.Forget(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.written, name)
}

func (w *Works) source(cluster string) *resource.Source {
	return w.sync.Source(cluster, wire.KindWork)
}

// send puts a work into Sync. One that is too large to travel is reported as
// failed; the version before it stays in force.
func (w *Works) send(work *v1alpha1.Work) error {
	r, err := encode(work)
	if err != nil {
		return err
	}
	err = w.source(work.Namespace).Put(r)
	if errors.Is(err, resource.ErrTooLarge) || errors.Is(err, resource.ErrInvalidKey) {
		w.enqueue(client.ObjectKeyFromObject(work), refusal(work, err))
		return nil
	}
	return err
}

// load makes a body at the moment it is sent.
func (w *Works) load(cluster, key string) (resource.Resource, bool) {
	name, ok := nameIn(cluster, key)
	if !ok {
		return resource.Resource{}, false
	}
	var work v1alpha1.Work
	if err := w.client.Get(context.Background(), name, &work); err != nil {
		return resource.Resource{}, false // gone: its Delete follows
	}
	r, err := encode(&work)
	return r, err == nil
}

// nameIn returns the work that a cluster's key is about, if it may be.
func nameIn(cluster, key string) (types.NamespacedName, bool) {
	k, err := wire.ParseWorkKey(key)
	if err != nil || k.Dialect != wire.DialectMulticluster || k.Namespace != cluster {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, true
}

// cluster tells whether a namespace is that of a cluster whose works are sent,
// and whether there is a record of such a cluster at all.
func (w *Works) cluster(ctx context.Context, name string) (managed, known bool, err error) {
	var record clusterv1.ManagedCluster
	err = w.client.Get(ctx, types.NamespacedName{Name: name}, &record)
	if apierrors.IsNotFound(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("get cluster: %w", err)
	}
	managed = record.Annotations[annotationManaged] == "true" && record.Spec.HubAcceptsClient && record.DeletionTimestamp == nil
	return managed, true, nil
}

// warn says once that a work lies where no cluster will take it.
func (w *Works) warn(work *v1alpha1.Work) {
	w.mu.Lock()
	_, before := w.warned[work.UID]
	if len(w.warned) >= maxWarned {
		clear(w.warned)
	}
	w.warned[work.UID] = struct{}{}
	w.mu.Unlock()
	if !before {
		w.events.Eventf(work, nil, corev1.EventTypeWarning, "ClusterNotManaged", "Publish",
			"namespace %s is not that of an accepted cluster of this hub: nothing is applied", work.Namespace)
	}
}

func (w *Works) addFinalizer(ctx context.Context, work *v1alpha1.Work) error {
	if controllerutil.ContainsFinalizer(work, v1alpha1.WorkFinalizer) {
		return nil
	}
	before := work.DeepCopy()
	controllerutil.AddFinalizer(work, v1alpha1.WorkFinalizer)
	if err := w.patchFinalizers(ctx, work, before); err != nil {
		return err
	}
	w.wrote(client.ObjectKeyFromObject(work), work.ResourceVersion)
	return nil
}

func (w *Works) dropFinalizer(ctx context.Context, work *v1alpha1.Work) error {
	before := work.DeepCopy()
	if !controllerutil.RemoveFinalizer(work, v1alpha1.WorkFinalizer) {
		return nil
	}
	return client.IgnoreNotFound(w.patchFinalizers(ctx, work, before))
}

func (w *Works) patchFinalizers(ctx context.Context, work, before *v1alpha1.Work) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.client.Patch(ctx, work, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch finalizers: %w", err)
	}
	return nil
}

// Release removes our finalizer from the works in the namespace of a cluster that
// is going, and names them: their objects stay in the spoke.
func (w *Works) Release(ctx context.Context, cluster string) (left []string, err error) {
	var list v1alpha1.WorkList
	for {
		if err := w.live.List(ctx, &list, client.InNamespace(cluster), client.Limit(releasePage), client.Continue(list.Continue)); err != nil {
			return left, fmt.Errorf("list works: %w", err)
		}
		for i := range list.Items {
			work := &list.Items[i]
			if !controllerutil.ContainsFinalizer(work, v1alpha1.WorkFinalizer) {
				continue
			}
			if err := w.dropFinalizer(ctx, work); err != nil {
				return left, fmt.Errorf("release work %s: %w", work.Name, err)
			}
			left = append(left, work.Name)
		}
		if list.Continue == "" {
			return left, nil
		}
	}
}

// releasePage is how many works are held at once while a cluster is released.
const releasePage = 100

// clusters completes the source of a cluster once every work of it is published.
type clusters struct{ works *Works }

// Reconcile publishes the works of one cluster.
func (c clusters) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w := c.works
	managed, known, err := w.cluster(ctx, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !known {
		w.sync.Forget(req.Name)
	}
	var list v1alpha1.WorkList
	if err := w.client.List(ctx, &list, client.InNamespace(req.Name)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list works: %w", err)
	}
	for i := range list.Items {
		err := w.publish(ctx, client.ObjectKeyFromObject(&list.Items[i]))
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: 1}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	if managed {
		w.source(req.Name).Complete()
	}
	return ctrl.Result{}, nil
}
