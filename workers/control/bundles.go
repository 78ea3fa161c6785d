// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/place"
	"github.com/spokelet/spokelet/workers/tenant"
)

// bundles places WorkerBundles on clusters.
type bundles struct {
	client   client.Client
	live     client.Reader // of Secrets, whose content no cache holds
	tenants  tenants
	registry Registry
	cfg      Config
	events   teller
	retries  retries
}

// Reconcile implements reconcile.Reconciler.
func (b *bundles) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return b.retries.after(req, reconcile.Result{}, b.reconcile(ctx, req.NamespacedName))
}

func (b *bundles) reconcile(ctx context.Context, key types.NamespacedName) error {
	bundle := &bundlev1alpha1.WorkerBundle{}
	if err := b.client.Get(ctx, key, bundle); err != nil {
		return client.IgnoreNotFound(err)
	}
	works, others, err := b.works(ctx, bundle)
	if err != nil {
		return err
	}
	if terminating(bundle) {
		return b.end(ctx, bundle, works)
	}
	after := bundle.DeepCopy()
	after.Status.Workers = int32(len(bundle.Spec.Workers)) //nolint:gosec // at most 100
	err = b.place(ctx, after, works, others)
	p, wrong := errors.AsType[*problem](err)
	if wrong {
		after.Status.ObservedGeneration = bundle.Generation
		set(&after.Status.Conditions, api.ConditionReady, bundle.Generation, no(p.reason, p.Error()))
	}
	if err := patchStatus(ctx, b.client, bundle, after); err != nil {
		return err
	}
	if err != nil && !wrong {
		return err
	}
	return b.lookForImage(ctx, after)
}

// works returns those of a bundle, by cluster, and those that another bundle has of the same
// account: there they have the same name.
func (b *bundles) works(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) (mine, others map[string]*workv1.ManifestWork, err error) {
	var own, all workv1.ManifestWorkList
	if err := b.client.List(ctx, &own, client.MatchingLabels{api.LabelNamespace: bundle.Namespace, api.LabelBundle: bundle.Name}); err != nil {
		return nil, nil, fmt.Errorf("list ManifestWorks: %w", err)
	}
	if err := b.client.List(ctx, &all, client.MatchingLabels{api.LabelAccount: bundle.Labels[api.LabelAccount]}); err != nil {
		return nil, nil, fmt.Errorf("list ManifestWorks: %w", err)
	}
	mine, others = map[string]*workv1.ManifestWork{}, map[string]*workv1.ManifestWork{}
	for i := range own.Items {
		mine[own.Items[i].Namespace] = &own.Items[i]
	}
	for i := range all.Items {
		if cluster := all.Items[i].Namespace; mine[cluster] == nil {
			others[cluster] = &all.Items[i]
		}
	}
	return mine, others, nil
}

// place writes the works of a bundle, and its status. A bundle that is not to be served has
// none.
func (b *bundles) place(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle, works, others map[string]*workv1.ManifestWork) error {
	accounts, err := b.tenants.claims(ctx)
	if err != nil {
		return err
	}
	owner, err := b.owner(ctx, accounts, bundle)
	if p, lost := errors.AsType[*problem](err); lost {
		left, err := b.remove(ctx, works)
		report(bundle, nil, left)
		return cmp.Or(err, error(p))
	}
	if err != nil {
		return err
	}
	clusters, err := b.clusters(ctx, owner, bundle)
	if err != nil {
		return err
	}
	unwanted := maps.Clone(works)
	maps.DeleteFunc(unwanted, func(cluster string, _ *workv1.ManifestWork) bool { return slices.Contains(clusters, cluster) })
	left, err := b.remove(ctx, unwanted)
	if err != nil {
		return err
	}
	p, err := b.placement(ctx, owner, bundle)
	if err != nil {
		return err
	}
	var errs []error
	status := make([]bundlev1alpha1.ClusterStatus, 0, len(clusters))
	for _, cluster := range clusters {
		p.Cluster, p.Before = cluster, works[cluster]
		wanted, err := place.Work(p)
		if err != nil {
			return &problem{reason: api.ReasonInvalid, err: err}
		}
		s, err := b.tell(ctx, p, wanted, others[cluster])
		status, errs = append(status, s), append(errs, err)
	}
	report(bundle, status, left)
	return errors.Join(errs...)
}

// owner returns the WorkerAccount of a bundle. A *problem is why it is not served.
func (b *bundles) owner(ctx context.Context, accounts *tenant.Accounts, bundle *bundlev1alpha1.WorkerBundle) (*accountv1alpha1.WorkerAccount, error) {
	account, err := accountOf(accounts, bundle.Namespace)
	if err != nil {
		return nil, err
	}
	owner, err := b.tenants.served(ctx, bundle.Namespace)
	if err != nil {
		return nil, err
	}
	switch {
	case owner == nil || !metav1.IsControlledBy(bundle, owner):
		return nil, problemf(api.ReasonNoAccount, "its WorkerAccount is gone")
	case bundle.Labels[api.LabelAccount] != account:
		return nil, problemf(api.ReasonNoAccount, "it is of account %q, and the namespace is of account %q now", bundle.Labels[api.LabelAccount], account)
	}
	return owner, nil
}

// tell writes the work of one cluster, if it is not that already, and returns what the
// cluster says. That one cannot be told does not keep the others from it.
func (b *bundles) tell(ctx context.Context, p place.Placement, wanted, other *workv1.ManifestWork) (bundlev1alpha1.ClusterStatus, error) {
	if other != nil { // its deletion is an event
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: fmt.Sprintf("WorkerBundle %s of namespace %s is being removed from it first",
			other.Labels[api.LabelBundle], other.Labels[api.LabelNamespace])}, nil
	}
	work, err := b.write(ctx, wanted, p.Before)
	switch {
	case apierrors.IsConflict(err):
		return place.Status(p.Before, place.Revision(p)), err
	case err != nil:
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: err.Error()}, err
	}
	return place.Status(work, place.Revision(p)), nil
}

// clusters are those that a bundle is placed on: none as long as there is nothing to run.
func (b *bundles) clusters(ctx context.Context, account *accountv1alpha1.WorkerAccount, bundle *bundlev1alpha1.WorkerBundle) ([]string, error) {
	if len(bundle.Spec.Workers) == 0 || bundle.Spec.PodTemplate.Image == "" {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := b.client.Get(ctx, types.NamespacedName{Name: account.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("read namespace: %w", err)
	}
	var all clusterv1.ManagedClusterList
	if err := b.client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list ManagedClusters: %w", err)
	}
	clusters, err := tenant.Clusters(namespace, account.Spec.ClusterSelector, all.Items)
	if err != nil {
		return nil, &problem{reason: api.ReasonInvalid, err: err}
	}
	return clusters, nil
}

// placement is what all clusters have in common.
func (b *bundles) placement(ctx context.Context, owner *accountv1alpha1.WorkerAccount, bundle *bundlev1alpha1.WorkerBundle) (place.Placement, error) {
	p := place.Placement{
		Account: bundle.Labels[api.LabelAccount], HubNamespace: bundle.Namespace, Host: owner.Status.Host, Bundle: bundle,
		Secrets: map[string]map[string][]byte{}, Options: b.cfg.Place,
	}
	for _, w := range bundle.Spec.Workers {
		if w.SecretRef == "" {
			continue
		}
		r := &releasev1alpha1.WorkerRelease{}
		if err := b.client.Get(ctx, types.NamespacedName{Namespace: bundle.Namespace, Name: w.Release}, r); err != nil {
			return p, fmt.Errorf("read WorkerRelease %s: %w", w.Release, err)
		}
		data, found, err := copyOf(ctx, b.live, r)
		if err != nil {
			return p, err
		}
		if !found {
			return p, problemf(api.ReasonSecretMissing, "the copy of the Secret of release %s was deleted: change its WorkerDeployment", w.Release)
		}
		p.Secrets[w.Release] = data
	}
	var err error
	p.PullSecret, err = b.pullSecret(ctx, bundle)
	return p, err
}

// pullSecret returns what the clusters read the image with: the account's, or the operator's.
func (b *bundles) pullSecret(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) ([]byte, error) {
	key := types.NamespacedName{Namespace: b.cfg.Build.Namespace, Name: b.cfg.PullSecret}
	if own := bundle.Spec.PodTemplate.ImagePullSecret; own != "" {
		key = types.NamespacedName{Namespace: bundle.Namespace, Name: own}
	}
	if key.Name == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := b.live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, problemf(api.ReasonSecretMissing, "imagePullSecret: there is no Secret %s in namespace %s", key.Name, key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key.Name, err)
	case len(secret.Data[corev1.DockerConfigJsonKey]) == 0:
		return nil, problemf(api.ReasonInvalid, "imagePullSecret: Secret %s has no %s", key.Name, corev1.DockerConfigJsonKey)
	}
	return secret.Data[corev1.DockerConfigJsonKey], nil
}

// write writes a work, if the existing one is not that already.
func (b *bundles) write(ctx context.Context, wanted, existing *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	switch {
	case existing == nil:
		if err := b.client.Create(ctx, wanted); err != nil {
			return nil, fmt.Errorf("create ManifestWork %s: %w", wanted.Name, err)
		}
		return wanted, nil
	case terminating(existing) || equality.Semantic.DeepEqual(existing.Spec, wanted.Spec) && subset(wanted.Labels, existing.Labels):
		return existing, nil
	}
	changed := existing.DeepCopy()
	changed.Spec = wanted.Spec
	if changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	maps.Copy(changed.Labels, wanted.Labels)
	if err := b.client.Update(ctx, changed); err != nil {
		return nil, fmt.Errorf("write ManifestWork %s: %w", wanted.Name, err)
	}
	return changed, nil
}

func subset(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return true
}

// remove deletes works, and returns the clusters that still have theirs.
func (b *bundles) remove(ctx context.Context, works map[string]*workv1.ManifestWork) ([]string, error) {
	for _, cluster := range slices.Sorted(maps.Keys(works)) {
		if terminating(works[cluster]) {
			continue
		}
		if err := deleteObject(ctx, b.client, "ManifestWork", works[cluster]); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(works)), nil
}

// report writes the status of clusters.
func report(bundle *bundlev1alpha1.WorkerBundle, clusters []bundlev1alpha1.ClusterStatus, left []string) {
	s := &bundle.Status
	s.ObservedGeneration = bundle.Generation
	s.SelectedClusters, s.ReadyClusters = int32(len(clusters)), 0 //nolint:gosec // clusters of a hub
	missing := ""
	for _, c := range clusters {
		switch {
		case c.Ready:
			s.ReadyClusters++
		case missing == "":
			missing = "cluster " + c.Name + ": " + c.Message
		}
	}
	for _, name := range left {
		clusters = append(clusters, bundlev1alpha1.ClusterStatus{Name: name, Message: "its work is being deleted"})
	}
	s.Clusters = clusters
	v := yes(api.ReasonServed, fmt.Sprintf("%d of %d clusters", s.ReadyClusters, s.SelectedClusters))
	switch {
	case bundle.Spec.PodTemplate.Image == "" || len(bundle.Spec.Workers) == 0:
		v = no(api.ReasonWaiting, "nothing is built yet")
	case s.SelectedClusters == 0:
		v = no(api.ReasonNoClusters, "no cluster is offered to the namespace and selected by the account")
	case missing != "":
		v = no(api.ReasonClustersNotReady, missing)
	}
	set(&s.Conditions, api.ConditionReady, bundle.Generation, v)
}

// end deletes the works of a bundle that is being deleted, and lets it go when they are gone.
func (b *bundles) end(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle, works map[string]*workv1.ManifestWork) error {
	if !controllerutil.ContainsFinalizer(bundle, api.Finalizer) {
		return nil
	}
	left, err := b.remove(ctx, works)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		after := bundle.DeepCopy()
		report(after, nil, left)
		set(&after.Status.Conditions, api.ConditionReady, bundle.Generation, no(api.ReasonWaiting, "cluster "+left[0]+" has not deleted it yet"))
		return patchStatus(ctx, b.client, bundle, after)
	}
	before := bundle.DeepCopy()
	controllerutil.RemoveFinalizer(bundle, api.Finalizer)
	if err := b.client.Patch(ctx, bundle, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("release WorkerBundle %s: %w", bundle.Name, err)
	}
	return nil
}

// lookForImage has an image be built again that somebody deleted from the registry while
// clusters still need it: its build is deleted, and accounts makes it again in its turn.
func (b *bundles) lookForImage(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) error {
	image := bundle.Spec.PodTemplate.Image
	if image == "" || meta.IsStatusConditionTrue(bundle.Status.Conditions, api.ConditionReady) || bundle.Status.SelectedClusters == 0 {
		return nil
	}
	if found, err := b.registry.Exists(ctx, bundle.Labels[api.LabelAccount], digestOf(image)); err != nil || found {
		return err
	}
	builders, err := buildersOf(ctx, b.client, bundle.Namespace)
	if err != nil {
		return err
	}
	for i := range builders {
		builder := &builders[i]
		if digestOf(builder.Status.Image) != digestOf(image) || terminating(builder) {
			continue
		}
		if err := deleteObject(ctx, b.client, "JobBuilder", builder, client.Preconditions{UID: &builder.UID}); err != nil {
			return err
		}
		b.events.warning(bundle, "ImageMissing", "image "+image+" was deleted from the registry; it is built again")
	}
	return nil
}
