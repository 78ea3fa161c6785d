// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// accountReconciler decides what each account serves.
type accountReconciler struct{ base }

// reconcile reconciles a namespace, which is the name of the key.
func (a *accountReconciler) reconcile(ctx context.Context, key types.NamespacedName) error {
	namespace := key.Name
	account, err := a.tenants.servedAccount(ctx, namespace)
	if err != nil {
		return err
	}
	if err := a.rejectOtherAccounts(ctx, namespace, account); err != nil {
		return err
	}
	all, err := listNamespaceObjects(ctx, a.client, namespace)
	if err != nil {
		return err
	}
	if account == nil {
		return a.updateDeploymentStatuses(ctx, all, nil, conditionFalse(api.ReasonNoAccount, "there is no WorkerAccount in namespace "+namespace))
	}
	after := account.DeepCopy()
	after.Status.ObservedGeneration = account.Generation
	if err := a.assignHost(ctx, after); err != nil {
		return err
	}
	served, built, err := a.reconcileBundle(ctx, after, all)
	rejected, err := setFromError(&after.Status.Conditions, api.ConditionAccepted, account.Generation, err, conditionTrue(api.ReasonAccepted, "account "+after.Status.Account))
	if err != nil { // the host is written in any case: one that was withdrawn must not stay
		return errors.Join(err, patchStatus(ctx, a.client, account, after))
	}
	if rejected != nil {
		built = conditionUnknown(api.ReasonWaiting, rejected.Error())
	}
	setCondition(&after.Status.Conditions, api.ConditionBuilt, account.Generation, built)
	if err := patchStatus(ctx, a.client, account, after); err != nil {
		return err
	}
	return a.updateDeploymentStatuses(ctx, all, served, built)
}

// rejectOtherAccounts sets Accepted to False on every WorkerAccount but the served one.
func (a *accountReconciler) rejectOtherAccounts(ctx context.Context, namespace string, served *accountv1alpha1.WorkerAccount) error {
	var list accountv1alpha1.WorkerAccountList
	if err := listIn(ctx, a.client, &list, namespace); err != nil {
		return err
	}
	for i := range list.Items {
		other := &list.Items[i]
		if isDeleting(other) || served == nil || other.Name == served.Name {
			continue
		}
		after := other.DeepCopy()
		after.Status.ObservedGeneration, after.Status.Host = other.Generation, ""
		meta.RemoveStatusCondition(&after.Status.Conditions, api.ConditionRouted)
		setCondition(&after.Status.Conditions, api.ConditionAccepted, other.Generation,
			conditionFalse(api.ReasonAccountTaken, "WorkerAccount "+served.Name+" is older, and a namespace has one account"))
		if err := patchStatus(ctx, a.client, other, after); err != nil {
			return err
		}
	}
	return nil
}

// assignHost sets the host of an account and its condition, where the operator creates routes.
// Bundles use the host of this status: only this function decides which account has a host.
func (a *accountReconciler) assignHost(ctx context.Context, account *accountv1alpha1.WorkerAccount) error {
	account.Status.Host = ""
	if a.Settings.Placement.Route == placement.RouteNone {
		meta.RemoveStatusCondition(&account.Status.Conditions, api.ConditionRouted)
		return nil
	}
	host, err := a.tenants.resolveHost(ctx, account.Namespace, a.Settings.Placement.HostSuffix)
	account.Status.Host = host
	_, err = setFromError(&account.Status.Conditions, api.ConditionRouted, account.Generation, err, conditionTrue(api.ReasonRouted, "host "+host))
	return err
}

// reconcileBundle updates the bundle of an account to its releases, as far as they are built, and
// returns it. The condition reports on the build of the current releases.
func (a *accountReconciler) reconcileBundle(ctx context.Context, account *accountv1alpha1.WorkerAccount, all namespaceObjects) (*bundlev1alpha1.WorkerBundle, conditionState, error) {
	var err error
	if account.Status.Account, err = a.tenants.account(ctx, account.Namespace); err != nil {
		return nil, conditionState{}, err
	}
	b, err := a.ensureBundle(ctx, account)
	if err != nil {
		return nil, conditionState{}, err
	}
	chosen, err := selectReleases(account, b, all)
	if err != nil {
		return b, conditionState{}, err
	}
	if len(chosen) == 0 {
		if err := a.updateBundle(ctx, b, account, nil, ""); err != nil {
			return b, conditionState{}, err
		}
		return b, conditionUnknown(api.ReasonWaiting, "there is no release to serve"), a.pruneBuilders(ctx, "", b, all)
	}
	in, err := newInput(account.Status.Account, chosen)
	if err != nil {
		return b, conditionState{}, err
	}
	wanted := a.newBuilder(account.Status.Account, b, in, chosen)
	builder, built, err := a.ensureBuilder(ctx, b, wanted)
	if err != nil {
		return b, built, err
	}
	if builder != nil && len(builder.Status.Rejected) > 0 {
		return b, built, a.rejectReleases(ctx, builder, chosen)
	}
	if builder != nil && builder.Status.Image != "" && built.status == metav1.ConditionTrue {
		image := a.Settings.Registry.Pull + "/" + account.Status.Account + "@" + imageDigest(builder.Status.Image)
		if err := a.updateBundle(ctx, b, account, newWorkers(in, chosen), image); err != nil {
			return b, built, err
		}
	}
	return b, built, a.pruneBuilders(ctx, wanted.Name, b, all)
}

// ensureBundle returns the bundle of an account, and creates it if there is none.
func (a *accountReconciler) ensureBundle(ctx context.Context, account *accountv1alpha1.WorkerAccount) (*bundlev1alpha1.WorkerBundle, error) {
	b := &bundlev1alpha1.WorkerBundle{}
	err := a.client.Get(ctx, types.NamespacedName{Namespace: account.Namespace, Name: account.Spec.WorkerBundleName}, b)
	switch {
	case err == nil && metav1.IsControlledBy(b, account) && !isDeleting(b):
		return b, a.deleteBundleOfOtherAccount(ctx, b, account.Status.Account)
	case err == nil:
		return nil, newStatusError(api.ReasonNameTaken, "WorkerBundle %s exists and is not of this account, or is being deleted", b.Name)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read WorkerBundle: %w", err)
	}
	b = &bundlev1alpha1.WorkerBundle{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace, Name: account.Spec.WorkerBundleName, Finalizers: []string{api.Finalizer},
			Labels:          map[string]string{api.LabelAccount: account.Status.Account},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(account, accountv1alpha1.GroupVersion.WithKind("WorkerAccount"))},
		},
		Spec: bundlev1alpha1.WorkerBundleSpec{
			Account:        account.Status.Account,
			DeploymentName: account.Spec.WorkerBundleName,
			PodTemplate:    bundlev1alpha1.PodTemplate{ImagePullSecret: account.Spec.PodTemplate.ImagePullSecret},
		},
	}
	if err := a.client.Create(ctx, b); err != nil {
		return nil, fmt.Errorf("create WorkerBundle %s: %w", b.Name, err)
	}
	return b, nil
}

// deleteBundleOfOtherAccount deletes a bundle if the namespace has another account now: the works
// and images of the bundle belong to the former account.
func (a *accountReconciler) deleteBundleOfOtherAccount(ctx context.Context, b *bundlev1alpha1.WorkerBundle, account string) error {
	old := b.Spec.Account
	if old == account {
		return nil
	}
	if err := deleteObject(ctx, a.client, "WorkerBundle", b, client.Preconditions{UID: &b.UID}); err != nil {
		return err
	}
	return newStatusError(api.ReasonWaiting, "WorkerBundle %s of account %q is being deleted first", b.Name, old)
}

// updateBundle writes the workers and the image of a bundle, if they changed.
func (a *accountReconciler) updateBundle(ctx context.Context, b *bundlev1alpha1.WorkerBundle, account *accountv1alpha1.WorkerAccount, workers []bundlev1alpha1.Worker, image string) error {
	before := b.DeepCopy()
	if old := b.Spec.PodTemplate.Image; old != image && old != "" {
		if b.Annotations == nil {
			b.Annotations = map[string]string{}
		}
		b.Annotations[api.AnnotationLastImage] = old
	}
	b.Spec.Workers = workers
	b.Spec.PodTemplate = bundlev1alpha1.PodTemplate{Image: image, ImagePullSecret: account.Spec.PodTemplate.ImagePullSecret}
	if bundlesEqual(before, b) {
		return nil
	}
	if err := patchObject(ctx, a.client, "WorkerBundle", before, b); err != nil {
		return err
	}
	if before.Spec.PodTemplate.Image != image {
		a.events.normal(b, "ImageChanged", "image "+image)
	}
	return nil
}

// rejectReleases sets Accepted to False on releases that cannot be built. Their event selects
// others.
func (a *accountReconciler) rejectReleases(ctx context.Context, builder *builderv1alpha1.JobBuilder, chosen []*releasev1alpha1.WorkerRelease) error {
	for _, rejected := range builder.Status.Rejected {
		for _, r := range chosen {
			if r.Spec.ScriptName != rejected.ScriptName {
				continue
			}
			after := r.DeepCopy()
			reason := cmp.Or(rejected.Reason, api.ReasonRejected)
			setCondition(&after.Status.Conditions, api.ConditionAccepted, r.Generation, conditionFalse(reason, rejected.Message))
			if err := patchStatus(ctx, a.client, r, after); err != nil {
				return err
			}
			a.events.warning(after, reason, rejected.Message)
			if reason == api.ReasonRejected {
				continue
			}
			// A missing object may come back, and is to be built then.
			if err := deleteObject(ctx, a.client, "JobBuilder", builder); err != nil {
				return err
			}
		}
	}
	return nil
}
