// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
	"github.com/spokelet/spokelet/workers/tenant"
)

// bundleReconciler places WorkerBundles on clusters.
type bundleReconciler struct{ base }

func (b *bundleReconciler) reconcile(ctx context.Context, key types.NamespacedName) error {
	bundle := &bundlev1alpha1.WorkerBundle{}
	if err := b.client.Get(ctx, key, bundle); err != nil {
		return client.IgnoreNotFound(err)
	}
	works, others, err := b.listWorks(ctx, bundle)
	if err != nil {
		return err
	}
	if isDeleting(bundle) {
		return b.finalize(ctx, bundle, works)
	}
	after := bundle.DeepCopy()
	after.Status.Workers = int32(len(bundle.Spec.Workers)) //nolint:gosec // at most 100
	wrong, failed := b.applyBundle(ctx, after, works, others)
	if wrong != nil {
		after.Status.ObservedGeneration = bundle.Generation
		setCondition(&after.Status.Conditions, api.ConditionReady, bundle.Generation, conditionFalse(wrong.reason, wrong.Error()))
	}
	if err := patchStatus(ctx, b.client, bundle, after); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	return b.rebuildMissingImage(ctx, after)
}

// applyBundle writes the works of a bundle and sets its status. A bundle that is not to be served has
// no works, and the statusError says why. A failure in one cluster does not affect the others.
func (b *bundleReconciler) applyBundle(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle, works, others map[string]*workv1.ManifestWork) (*statusError, error) {
	accounts, err := b.tenants.listAccounts(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := b.getOwner(ctx, accounts, bundle)
	if p, lost := errors.AsType[*statusError](err); lost {
		left, err := b.deleteWorks(ctx, works)
		setClusterStatuses(bundle, nil, left)
		return p, err
	}
	if err != nil {
		return nil, err
	}
	clusters, err := b.selectClusters(ctx, owner, bundle)
	if err != nil {
		return splitStatusError(err)
	}
	unwanted := maps.Clone(works)
	maps.DeleteFunc(unwanted, func(cluster string, _ *workv1.ManifestWork) bool { return slices.Contains(clusters, cluster) })
	left, failed := b.deleteWorks(ctx, unwanted)
	p, err := b.newPlacement(ctx, owner, bundle)
	if err != nil {
		wrong, err := splitStatusError(err)
		return wrong, errors.Join(failed, err)
	}
	status, wrong, err := b.applyWorks(ctx, p, clusters, works, others)
	if wrong == nil {
		setClusterStatuses(bundle, status, left)
	}
	return wrong, errors.Join(failed, err)
}

// getOwner returns the WorkerAccount of a bundle. A *statusError says why it is not served.
func (b *bundleReconciler) getOwner(ctx context.Context, accounts *tenant.Accounts, bundle *bundlev1alpha1.WorkerBundle) (*accountv1alpha1.WorkerAccount, error) {
	account, err := resolveAccount(accounts, bundle.Namespace)
	if err != nil {
		return nil, err
	}
	owner, err := b.tenants.servedAccount(ctx, bundle.Namespace)
	if err != nil {
		return nil, err
	}
	named := owner != nil && owner.Spec.WorkerBundleName == bundle.Name
	switch {
	case metav1.GetControllerOf(bundle) == nil && named:
		return nil, newStatusError(api.ReasonNoAccount, "WorkerAccount %s names it, and the operator has not made it: delete it", owner.Name)
	case metav1.GetControllerOf(bundle) == nil:
		return nil, newStatusError(api.ReasonNoAccount, "no WorkerAccount names it")
	case owner == nil || !metav1.IsControlledBy(bundle, owner):
		return nil, newStatusError(api.ReasonNoAccount, "its WorkerAccount is gone")
	case bundle.Spec.Account != account:
		return nil, newStatusError(api.ReasonNoAccount, "it is of account %q, and the namespace is of account %q now", bundle.Spec.Account, account)
	}
	return owner, nil
}

// selectClusters returns the clusters that a bundle is placed on: none while it is empty.
func (b *bundleReconciler) selectClusters(ctx context.Context, account *accountv1alpha1.WorkerAccount, bundle *bundlev1alpha1.WorkerBundle) ([]string, error) {
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
		return nil, &statusError{reason: api.ReasonInvalid, err: err}
	}
	return clusters, nil
}

// newPlacement returns the placement without the fields of one cluster.
func (b *bundleReconciler) newPlacement(ctx context.Context, owner *accountv1alpha1.WorkerAccount, bundle *bundlev1alpha1.WorkerBundle) (placement.Placement, error) {
	p := placement.Placement{
		Account: bundle.Spec.Account, HubNamespace: bundle.Namespace, Host: owner.Status.Host, Bundle: bundle,
		Secrets: map[string]map[string][]byte{}, Options: b.Settings.Placement,
	}
	for _, w := range bundle.Spec.Workers {
		if w.SecretRef == "" {
			continue
		}
		r := &releasev1alpha1.WorkerRelease{}
		if err := b.client.Get(ctx, types.NamespacedName{Namespace: bundle.Namespace, Name: w.Release}, r); err != nil {
			return p, fmt.Errorf("read WorkerRelease %s: %w", w.Release, err)
		}
		data, found, err := getSecretCopy(ctx, b.apiReader, r)
		if err != nil {
			return p, err
		}
		if !found {
			return p, newStatusError(api.ReasonSecretMissing, "the copy of the Secret of release %s was deleted: change its WorkerDeployment", w.Release)
		}
		p.Secrets[w.Release] = data
	}
	var err error
	p.PullSecret, err = b.getPullSecret(ctx, bundle)
	return p, err
}

// getPullSecret returns the pull secret of the account, or else the operator's.
func (b *bundleReconciler) getPullSecret(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) ([]byte, error) {
	key := types.NamespacedName{Namespace: b.Namespace, Name: b.Settings.Registry.PullSecret}
	if own := bundle.Spec.PodTemplate.ImagePullSecret; own != "" {
		key = types.NamespacedName{Namespace: bundle.Namespace, Name: own}
	}
	if key.Name == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := b.apiReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, newStatusError(api.ReasonSecretMissing, "imagePullSecret: there is no Secret %s in namespace %s", key.Name, key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key.Name, err)
	case len(secret.Data[corev1.DockerConfigJsonKey]) == 0:
		return nil, newStatusError(api.ReasonInvalid, "imagePullSecret: Secret %s has no %s", key.Name, corev1.DockerConfigJsonKey)
	}
	return secret.Data[corev1.DockerConfigJsonKey], nil
}

// setClusterStatuses sets the statuses of clusters and the condition Ready.
func setClusterStatuses(bundle *bundlev1alpha1.WorkerBundle, clusters, left []bundlev1alpha1.ClusterStatus) {
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
	s.Clusters = slices.Concat(clusters, left)
	v := conditionTrue(api.ReasonServed, fmt.Sprintf("%d of %d clusters", s.ReadyClusters, s.SelectedClusters))
	switch {
	case bundle.Spec.PodTemplate.Image == "" || len(bundle.Spec.Workers) == 0:
		v = conditionFalse(api.ReasonWaiting, "nothing is built yet")
	case s.SelectedClusters == 0:
		v = conditionFalse(api.ReasonNoClusters, "no cluster is offered to the namespace and selected by the account")
	case missing != "":
		v = conditionFalse(api.ReasonClustersNotReady, missing)
	}
	setCondition(&s.Conditions, api.ConditionReady, bundle.Generation, v)
}

// finalize deletes the works of a deleted bundle, and removes its finalizer when they are gone.
func (b *bundleReconciler) finalize(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle, works map[string]*workv1.ManifestWork) error {
	if !controllerutil.ContainsFinalizer(bundle, api.Finalizer) {
		return nil
	}
	if left, failed := b.deleteWorks(ctx, works); len(left) > 0 {
		after := bundle.DeepCopy()
		setClusterStatuses(after, nil, left)
		setCondition(&after.Status.Conditions, api.ConditionReady, bundle.Generation, conditionFalse(api.ReasonWaiting, "cluster "+left[0].Name+": "+left[0].Message))
		return errors.Join(failed, patchStatus(ctx, b.client, bundle, after))
	}
	return removeFinalizer(ctx, b.client, "WorkerBundle", bundle)
}

// rebuildMissingImage deletes the build of an image that was deleted from the registry while
// clusters still need it. The accountReconciler then creates the build again.
func (b *bundleReconciler) rebuildMissingImage(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) error {
	image := bundle.Spec.PodTemplate.Image
	if image == "" || meta.IsStatusConditionTrue(bundle.Status.Conditions, api.ConditionReady) || bundle.Status.SelectedClusters == 0 {
		return nil
	}
	if found, err := b.Registry.Exists(ctx, bundle.Spec.Account, imageDigest(image)); err != nil || found {
		return err
	}
	builders, err := listBuilders(ctx, b.client, bundle.Namespace)
	if err != nil {
		return err
	}
	for i := range builders {
		builder := &builders[i]
		if imageDigest(builder.Status.Image) != imageDigest(image) || isDeleting(builder) {
			continue
		}
		if err := deleteObject(ctx, b.client, "JobBuilder", builder, client.Preconditions{UID: &builder.UID}); err != nil {
			return err
		}
		b.events.warning(bundle, "ImageMissing", "image "+image+" was deleted from the registry; it is built again")
	}
	return nil
}
