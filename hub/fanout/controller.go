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
	kinds []*kind
}

// kind reconciles the parents of one kind.
type kind struct {
	cfg   Config
	name  string
	blank func() client.Object
	list  func() client.ObjectList
	of    func(client.Object) parent

	mu sync.Mutex
	// All below are guarded by mu.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // nil until it runs
	// statuses are those of parents, as they were written last.
	statuses map[types.NamespacedName]*storedStatus
	// blocking are, by parent, the Works of others in the way of its own.
	blocking map[types.NamespacedName][]types.NamespacedName
	// reaches are where authors may have Works, by their right to have them everywhere.
	reaches map[requester.Right]*reach
	// versions of parents, of which the reach of the author was asked.
	versions map[types.NamespacedName]version
}

// New returns a controller; SetupWithManager starts it.
func New(cfg Config) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	kinds := []*kind{
		{
			name:  kindWorkSet,
			blank: func() client.Object { return &v1alpha1.WorkSet{} },
			list:  func() client.ObjectList { return &v1alpha1.WorkSetList{} },
			of:    func(o client.Object) parent { return workSet(o.(*v1alpha1.WorkSet)) }, //nolint:forcetypeassert // of blank's type
		},
		{
			name:  kindResourceView,
			blank: func() client.Object { return &v1alpha1.ResourceView{} },
			list:  func() client.ObjectList { return &v1alpha1.ResourceViewList{} },
			of:    func(o client.Object) parent { return resourceView(o.(*v1alpha1.ResourceView)) }, //nolint:forcetypeassert // likewise
		},
	}
	for _, k := range kinds {
		k.cfg = cfg
		k.statuses, k.blocking = map[types.NamespacedName]*storedStatus{}, map[types.NamespacedName][]types.NamespacedName{}
		k.reaches, k.versions = map[requester.Right]*reach{}, map[types.NamespacedName]version{}
	}
	c := &Controller{kinds: kinds}
	cfg.Rights.Add(c.review)
	return c, nil
}

// SetupWithManager adds a controller for each kind.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.Work{}, indexOwner, indexOf)
	if err != nil {
		return fmt.Errorf("index of works: %w", err)
	}
	for _, k := range c.kinds {
		err := ctrl.NewControllerManagedBy(mgr).Named("fanout-"+strings.ToLower(k.name)).
			For(k.blank(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
			Watches(&v1alpha1.Work{}, k.workEvents()).
			Watches(&clusterv1.ManagedCluster{}, k.concerned(), builder.WithPredicates(clusterEvents())).
			WatchesRawSource(source.Func(k.attach)).
			WithOptions(controller.Options{MaxConcurrentReconciles: reconcilers}).
			Complete(k)
		if err != nil {
			return fmt.Errorf("controller of %s: %w", k.name, err)
		}
	}
	return nil
}

// attach keeps the queue, for those who wait for rights, and has all parents looked at when
// authors have to be recorded under another registration.
func (k *kind) attach(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	k.cfg.Authors.Subscribe(func() {
		for _, parent := range k.where(ctx, everyone) {
			queue.Add(parent)
		}
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = queue
	return nil
}

// review looks again at all parents: what their authors may know of may be other clusters.
// Of what is there already, package mcm sees to it.
func (c *Controller) review(ctx context.Context) error {
	for _, k := range c.kinds {
		k.mu.Lock()
		clear(k.reaches)
		queue := k.queue
		k.mu.Unlock()
		if queue == nil {
			continue
		}
		for _, parent := range k.where(ctx, everyone) {
			queue.Add(parent)
		}
	}
	return nil
}

// Reconcile brings the Works of one parent to what they are to be, and says how they are.
func (k *kind) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := k.blank()
	err := k.cfg.Client.Get(ctx, req.NamespacedName, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("get %s: %w", req, err)
	}
	gone := err != nil || obj.GetDeletionTimestamp() != nil
	if gone { // its name is enough to find its Works
		obj.SetNamespace(req.Namespace)
		obj.SetName(req.Name)
	}
	p := k.of(obj)
	works, err := k.works(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone {
		k.forget(req.NamespacedName)
		return ctrl.Result{}, k.remove(ctx, works)
	}
	d, err := k.distribute(ctx, p, works)
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err()
	}
	if err != nil && !errors.Is(err, errSelector) && !errors.Is(err, requester.ErrUnknown) {
		return ctrl.Result{}, err
	}
	k.expect(req.NamespacedName, d.blocking)
	next, err := k.say(ctx, p, d, err)
	if err != nil || d.failure != nil {
		return ctrl.Result{}, errors.Join(d.failure, err)
	}
	if next.IsZero() && k.free(ctx, d.blocking) {
		next.RequeueAfter = pace
	}
	return next, nil
}

// forget drops all that is known of a parent that is gone.
func (k *kind) forget(name types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.statuses, name)
	delete(k.blocking, name)
	delete(k.versions, name)
}

// expect keeps which Works of others a parent waits for to go.
func (k *kind) expect(name types.NamespacedName, works []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(works) == 0 {
		delete(k.blocking, name)
		return
	}
	k.blocking[name] = works
}

// free tells whether what was in the way has gone before anybody waited for that.
func (k *kind) free(ctx context.Context, works []types.NamespacedName) bool {
	for _, name := range works {
		if apierrors.IsNotFound(k.cfg.Client.Get(ctx, name, &v1alpha1.Work{})) {
			return true
		}
	}
	return false
}
