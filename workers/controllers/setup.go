// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// maxConcurrentReconciles limits how many objects of a kind are reconciled at a time: most of them
// wait for the object store or the registry.
const maxConcurrentReconciles = 8

// NewScheme returns a scheme of all kinds that the controllers use.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, clusterv1.Install, workv1.Install, accountv1alpha1.AddToScheme, builderv1alpha1.AddToScheme,
		bundlev1alpha1.AddToScheme, deploymentv1alpha1.AddToScheme, releasev1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("scheme: %w", err)
		}
	}
	return scheme, nil
}

// CacheOptions limits the caches to what the controllers use. Of Secrets they hold metadata only,
// which the controllers request by that type.
func CacheOptions(namespace string) (cache.Options, error) {
	ours, err := hasLabel(api.LabelAccount)
	if err != nil {
		return cache.Options{}, err
	}
	works, err := hasLabel(api.LabelBundle)
	if err != nil {
		return cache.Options{}, err
	}
	builds, err := hasLabel(api.LabelBuilder)
	if err != nil {
		return cache.Options{}, err
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Namespace{}:    {Label: ours},
			&workv1.ManifestWork{}: {Label: works, Transform: trimWork},
			&batchv1.Job{}:         {Namespaces: map[string]cache.Config{namespace: {}}},
			&corev1.Pod{}:          {Namespaces: map[string]cache.Config{namespace: {LabelSelector: builds}}},
		},
	}, nil
}

// indexName finds works by their name: an account has the same one in each cluster.
const indexName = "metadata.name"

func indexWorkName(o client.Object) []string { return []string{o.GetName()} }

// hasLabel selects objects that have a label.
func hasLabel(label string) (labels.Selector, error) {
	r, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	return labels.NewSelector().Add(*r), nil
}

// Setup adds the controllers to a manager.
func Setup(ctx context.Context, mgr manager.Manager, cfg Config) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &workv1.ManifestWork{}, indexName, indexWorkName); err != nil {
		return fmt.Errorf("index of ManifestWorks: %w", err)
	}
	s := setup{base: newBase(cfg, mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("spokelet-workers")), mgr: mgr}
	for name, add := range map[string]func(*builder.Builder) error{
		"deployments": s.setupDeployments, "releases": s.setupReleases, "accounts": s.setupAccounts, "builds": s.setupBuilds, "bundles": s.setupBundles,
	} {
		options := controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}
		if err := add(builder.ControllerManagedBy(mgr).Named(name).WithOptions(options)); err != nil {
			return fmt.Errorf("controller of %s: %w", name, err)
		}
	}
	return nil
}

type setup struct {
	base

	mgr manager.Manager
}

// secretMetadata selects the metadata of Secrets.
func secretMetadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return o
}

// inNamespaceOf enqueues all objects of a kind in the namespace of an object.
func (s setup) inNamespaceOf(kind client.ObjectList) handler.EventHandler {
	list := s.requestsFor(kind, matchAll)
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request { return list(ctx, o.GetNamespace()) })
}

// inNamespace enqueues all objects of a kind in a Namespace.
func (s setup) inNamespace(kind client.ObjectList) handler.EventHandler {
	list := s.requestsFor(kind, matchAll)
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request { return list(ctx, o.GetName()) })
}

func (s setup) setupDeployments(b *builder.Builder) error {
	asked := fieldChangedPredicate(func(wd *deploymentv1alpha1.WorkerDeployment) string { return wd.Status.Release })
	served := fieldChangedPredicate(func(wd *deploymentv1alpha1.WorkerDeployment) string { return wd.Status.Served }) // the release before may be pruned
	d := &deploymentReconciler{s.base}
	return b.
		For(&deploymentv1alpha1.WorkerDeployment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, served))).
		Owns(&releasev1alpha1.WorkerRelease{}, builder.WithPredicates(deletionPredicate())).
		Watches(&deploymentv1alpha1.WorkerDeployment{}, handler.EnqueueRequestsFromMapFunc(s.deploymentsWithTakenName), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, asked))).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(s.deploymentsForSecret)).
		Watches(&corev1.Namespace{}, s.inNamespace(&deploymentv1alpha1.WorkerDeploymentList{})).
		Complete(withRetry(withoutResult(d.reconcile)))
}

func (s setup) setupReleases(b *builder.Builder) error {
	r := &releaseReconciler{s.base}
	return b.
		For(&releasev1alpha1.WorkerRelease{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(secretMetadata(), s.inNamespaceOf(&releasev1alpha1.WorkerReleaseList{})).
		Watches(&corev1.Namespace{}, s.inNamespace(&releasev1alpha1.WorkerReleaseList{})).
		Complete(withRetry(withoutResult(r.reconcile)))
}

func (s setup) setupAccounts(b *builder.Builder) error {
	namespaceOf := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return requestFor("", o.GetNamespace()) })
	namespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return requestFor("", o.GetName()) })
	waiting := handler.EnqueueRequestsFromMapFunc(s.accountsWaitingForHost)
	a := &accountReconciler{s.base}
	return b.
		Watches(&accountv1alpha1.WorkerAccount{}, namespaceOf).
		Watches(&deploymentv1alpha1.WorkerDeployment{}, namespaceOf).
		Watches(&releasev1alpha1.WorkerRelease{}, namespaceOf).
		Watches(&builderv1alpha1.JobBuilder{}, namespaceOf).
		Watches(&bundlev1alpha1.WorkerBundle{}, namespaceOf).
		Watches(&corev1.Namespace{}, namespace).
		Watches(&accountv1alpha1.WorkerAccount{}, waiting, builder.WithPredicates(hostChangedPredicate())).
		Complete(withRetry(withoutResult(a.reconcile)))
}

func (s setup) setupBuilds(b *builder.Builder) error {
	builderOf := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetLabels()[api.LabelNamespace], o.GetLabels()[api.LabelBuilder])
	})
	r := &buildReconciler{base: s.base, now: time.Now}
	return b.
		For(&builderv1alpha1.JobBuilder{}).
		Watches(&batchv1.Job{}, builderOf).
		Watches(&corev1.Pod{}, builderOf, builder.WithPredicates(podResultPredicate())).
		Watches(&releasev1alpha1.WorkerRelease{}, s.inNamespaceOf(&builderv1alpha1.JobBuilderList{})).
		Complete(withRetry(r.reconcile))
}

func (s setup) setupBundles(b *builder.Builder) error {
	list := s.requestsFor(&bundlev1alpha1.WorkerBundleList{}, matchAll)
	every := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return list(ctx, "") })
	r := &bundleReconciler{s.base}
	return b.
		For(&bundlev1alpha1.WorkerBundle{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&workv1.ManifestWork{}, handler.EnqueueRequestsFromMapFunc(s.bundlesForWork)).
		// A change of a cluster or a namespace may change the clusters of every account.
		Watches(&clusterv1.ManagedCluster{}, every, builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&accountv1alpha1.WorkerAccount{}, s.inNamespaceOf(&bundlev1alpha1.WorkerBundleList{}), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, hostChangedPredicate()))).
		Watches(&corev1.Namespace{}, every).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(s.bundlesForSecret)).
		Complete(withRetry(withoutResult(r.reconcile)))
}

// requestFor returns a request, or none if the name is empty.
func requestFor(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
