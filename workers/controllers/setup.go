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

// maxConcurrentReconciles bounds how many objects of a kind are reconciled at a time: most of them wait for the
// object store or the registry.
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

// CacheOptions hold in memory what the controllers look at, and no more: of Secrets only
// their metadata, which the controllers ask for by that type.
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
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &workv1.ManifestWork{}, indexName, indexWorkName); err != nil {
		return fmt.Errorf("index of ManifestWorks: %w", err)
	}
	s := setup{mgr: mgr, cfg: cfg, tenants: tenantReader{mgr.GetClient()}, events: eventRecorder{mgr.GetEventRecorder("spokelet-workers")}}
	for name, add := range map[string]func() error{
		"deployments": s.setupDeployments, "releases": s.setupReleases, "accounts": s.setupAccounts, "builds": s.setupBuilds, "bundles": s.setupBundles,
	} {
		if err := add(); err != nil {
			return fmt.Errorf("controller of %s: %w", name, err)
		}
	}
	return nil
}

type setup struct {
	mgr     manager.Manager
	cfg     Config
	tenants tenantReader
	events  eventRecorder
}

func (s setup) options() controller.Options {
	return controller.Options{MaxConcurrentReconciles: maxConcurrentReconciles}
}

// secretMetadata are all Secrets, of which only the metadata is read.
func secretMetadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return o
}

func (s setup) setupDeployments() error {
	c := s.mgr.GetClient()
	ofNamespace := s.requestsFor(&deploymentv1alpha1.WorkerDeploymentList{}, matchAll)
	asked := fieldChangedPredicate(func(wd *deploymentv1alpha1.WorkerDeployment) string { return wd.Status.Release })
	served := fieldChangedPredicate(func(wd *deploymentv1alpha1.WorkerDeployment) string { return wd.Status.Served }) // the one before may go
	return builder.ControllerManagedBy(s.mgr).Named("deployments").WithOptions(s.options()).
		For(&deploymentv1alpha1.WorkerDeployment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, served))).
		Owns(&releasev1alpha1.WorkerRelease{}, builder.WithPredicates(deletionPredicate())).
		Watches(&deploymentv1alpha1.WorkerDeployment{}, handler.EnqueueRequestsFromMapFunc(s.deploymentsWithTakenName), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, asked))).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(s.deploymentsForSecret)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request { return ofNamespace(ctx, o.GetName()) })).
		Complete(&deploymentReconciler{client: c, apiReader: s.mgr.GetAPIReader(), tenants: s.tenants, store: s.cfg.Store, events: s.events, retries: newRetries()})
}

func (s setup) setupReleases() error {
	ofNamespace := s.requestsFor(&releasev1alpha1.WorkerReleaseList{}, matchAll)
	inNamespace := func(ctx context.Context, o client.Object) []reconcile.Request {
		return ofNamespace(ctx, o.GetNamespace())
	}
	return builder.ControllerManagedBy(s.mgr).Named("releases").WithOptions(s.options()).
		For(&releasev1alpha1.WorkerRelease{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(inNamespace)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request { return ofNamespace(ctx, o.GetName()) })).
		Complete(&releaseReconciler{client: s.mgr.GetClient(), apiReader: s.mgr.GetAPIReader(), tenants: s.tenants, store: s.cfg.Store, events: s.events, retries: newRetries()})
}

func (s setup) setupAccounts() error {
	own := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return requestFor("", o.GetNamespace()) })
	named := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return requestFor("", o.GetName()) })
	waiting := handler.EnqueueRequestsFromMapFunc(s.accountsWaitingForHost)
	return builder.ControllerManagedBy(s.mgr).Named("accounts").WithOptions(s.options()).
		Watches(&accountv1alpha1.WorkerAccount{}, own).
		Watches(&deploymentv1alpha1.WorkerDeployment{}, own).
		Watches(&releasev1alpha1.WorkerRelease{}, own).
		Watches(&builderv1alpha1.JobBuilder{}, own).
		Watches(&bundlev1alpha1.WorkerBundle{}, own).
		Watches(&corev1.Namespace{}, named).
		Watches(&accountv1alpha1.WorkerAccount{}, waiting, builder.WithPredicates(hostChangedPredicate())).
		Complete(&accountReconciler{
			client: s.mgr.GetClient(), tenants: s.tenants, events: s.events, retries: newRetries(), pull: s.cfg.Pull, runtime: s.cfg.Runtime, placement: s.cfg.Placement,
		})
}

func (s setup) setupBuilds() error {
	job := func(_ context.Context, o client.Object) []reconcile.Request {
		return requestFor(o.GetLabels()[api.LabelNamespace], o.GetLabels()[api.LabelBuilder])
	}
	ofNamespace := s.requestsFor(&builderv1alpha1.JobBuilderList{}, matchAll)
	inNamespace := func(ctx context.Context, o client.Object) []reconcile.Request {
		return ofNamespace(ctx, o.GetNamespace())
	}
	return builder.ControllerManagedBy(s.mgr).Named("builds").WithOptions(s.options()).
		For(&builderv1alpha1.JobBuilder{}).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(job)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(job), builder.WithPredicates(podResultPredicate())).
		Watches(&releasev1alpha1.WorkerRelease{}, handler.EnqueueRequestsFromMapFunc(inNamespace)).
		Complete(&buildReconciler{
			client: s.mgr.GetClient(), apiReader: s.mgr.GetAPIReader(), tenants: s.tenants, registry: s.cfg.Registry,
			cfg: s.cfg.Build, events: s.events, retries: newRetries(), now: time.Now,
		})
}

func (s setup) setupBundles() error {
	everywhere := s.requestsFor(&bundlev1alpha1.WorkerBundleList{}, matchAll)
	every := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return everywhere(ctx, "") })
	inNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return everywhere(ctx, o.GetNamespace())
	})
	return builder.ControllerManagedBy(s.mgr).Named("bundles").WithOptions(s.options()).
		For(&bundlev1alpha1.WorkerBundle{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&workv1.ManifestWork{}, handler.EnqueueRequestsFromMapFunc(s.bundlesForWork)).
		// Whom a cluster or an account belongs to may change for everybody.
		Watches(&clusterv1.ManagedCluster{}, every, builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&accountv1alpha1.WorkerAccount{}, inNamespace, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, hostChangedPredicate()))).
		Watches(&corev1.Namespace{}, every).
		WatchesMetadata(secretMetadata(), handler.EnqueueRequestsFromMapFunc(s.bundlesForSecret)).
		Complete(&bundleReconciler{client: s.mgr.GetClient(), apiReader: s.mgr.GetAPIReader(), tenants: s.tenants, registry: s.cfg.Registry, cfg: s.cfg, events: s.events, retries: newRetries()})
}

// requestFor is a request, if both parts of it are known.
func requestFor(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
