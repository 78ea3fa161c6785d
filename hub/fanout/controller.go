// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
)

// Controller serves WorkSets and ResourceViews.
type Controller struct {
	reconcilers []*reconciler
}

// reconciler reconciles the parents of one kind.
type reconciler struct {
	cfg       Config
	name      string
	newObject func() client.Object
	newList   func() client.ObjectList
	newParent func(client.Object) parent

	mu sync.Mutex
	// All below are guarded by mu.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // nil until it runs
	// statuses are those of parents, as they were written last.
	statuses map[types.NamespacedName]*storedStatus
	// foreignWorks has, by parent, the Works of others that have the names of its own.
	foreignWorks map[types.NamespacedName][]types.NamespacedName
	// authorClusters are where authors may have Works, by their right to have them everywhere.
	authorClusters map[requester.Permission]*allowedClusters
	// versions of parents, of which the reach of the author was asked.
	versions map[types.NamespacedName]version
}

// New returns a controller; SetupWithManager starts it.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	kinds := []*reconciler{
		{
			name:      kindWorkSet,
			newObject: func() client.Object { return &v1alpha1.WorkSet{} },
			newList:   func() client.ObjectList { return &v1alpha1.WorkSetList{} },
			newParent: func(o client.Object) parent { return newWorkSetParent(o.(*v1alpha1.WorkSet)) }, //nolint:forcetypeassert // of blank's type
		},
		{
			name:      kindResourceView,
			newObject: func() client.Object { return &v1alpha1.ResourceView{} },
			newList:   func() client.ObjectList { return &v1alpha1.ResourceViewList{} },
			newParent: func(o client.Object) parent { return newResourceViewParent(o.(*v1alpha1.ResourceView)) }, //nolint:forcetypeassert // likewise
		},
	}
	for _, k := range kinds {
		k.cfg = cfg
		k.statuses, k.foreignWorks = map[types.NamespacedName]*storedStatus{}, map[types.NamespacedName][]types.NamespacedName{}
		k.authorClusters, k.versions = map[requester.Permission]*allowedClusters{}, map[types.NamespacedName]version{}
	}
	c := &Controller{reconcilers: kinds}
	cfg.Rights.Add(c.recheckRights)
	return c, nil
}

// SetupWithManager adds a controller for each kind.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Work{}, indexOwner, indexOf)
	if err != nil {
		return fmt.Errorf("index of works: %w", err)
	}
	for _, k := range c.reconcilers {
		err := ctrl.NewControllerManagedBy(mgr).Named("fanout-"+strings.ToLower(k.name)).
			For(k.newObject(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
			Watches(&v1alpha1.Work{}, k.workHandler()).
			Watches(&clusterv1.ManagedCluster{}, k.clusterHandler(), builder.WithPredicates(selectionChanged())).
			WatchesRawSource(source.Func(k.start)).
			WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers}).
			Complete(k)
		if err != nil {
			return fmt.Errorf("controller of %s: %w", k.name, err)
		}
	}
	return nil
}

// start stores the queue, for those who wait for rights, and enqueues all parents when
// authors have to be recorded under another registration.
func (k *reconciler) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	k.cfg.Authors.Subscribe(func() {
		for _, parent := range k.listParents(ctx, allParents) {
			queue.Add(parent)
		}
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = queue
	return nil
}

// recheckRights looks again at all parents: what their authors may know of may be other clusters.
// Of what is there already, package mcm sees to it.
func (c *Controller) recheckRights(ctx context.Context) error {
	for _, k := range c.reconcilers {
		k.mu.Lock()
		clear(k.authorClusters)
		queue := k.queue
		k.mu.Unlock()
		if queue == nil {
			continue
		}
		for _, parent := range k.listParents(ctx, allParents) {
			queue.Add(parent)
		}
	}
	return nil
}

// Reconcile creates, updates and deletes the Works of one parent, and writes its status.
func (k *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := k.newObject()
	err := k.cfg.Client.Get(ctx, req.NamespacedName, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", req, err)
	}
	gone := err != nil || obj.GetDeletionTimestamp() != nil
	if gone { // its name is enough to find its Works
		obj.SetNamespace(req.Namespace)
		obj.SetName(req.Name)
	}
	p := k.newParent(obj)
	works, err := k.works(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone {
		k.remove(req.NamespacedName)
		return ctrl.Result{}, k.deleteWorks(ctx, works)
	}
	d, err := k.distribute(ctx, p, works)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	if err != nil && !errors.Is(err, errSelector) && !errors.Is(err, requester.ErrUnknown) {
		return ctrl.Result{}, err
	}
	k.setBlocking(req.NamespacedName, d.blocking)
	next, err := k.updateStatus(ctx, p, d, err)
	if err != nil || d.failure != nil {
		return ctrl.Result{}, errors.Join(d.failure, err)
	}
	if next.IsZero() && k.isUnblocked(ctx, d.blocking) {
		next.RequeueAfter = statusInterval
	}
	return next, nil
}

// remove drops all that is known of a parent that is gone.
func (k *reconciler) remove(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.statuses, name)
	delete(k.foreignWorks, name)
	delete(k.versions, name)
}

// setBlocking keeps which Works of others a parent waits for to go.
func (k *reconciler) setBlocking(name types.NamespacedName, works []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(works) == 0 {
		delete(k.foreignWorks, name)
		return
	}
	k.foreignWorks[name] = works
}

// isUnblocked reports whether a foreign Work was deleted before its parent waited for that.
func (k *reconciler) isUnblocked(ctx context.Context, works []types.NamespacedName) bool {
	for _, name := range works {
		if apierrors.IsNotFound(k.cfg.Client.Get(ctx, name, &v1alpha1.Work{})) {
			return true
		}
	}
	return false
}
