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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// accounts decides what each account serves. Its requests are namespaces.
type accounts struct {
	client  client.Client
	tenants tenants
	events  teller
	retries retries
	pull    string
	runtime string
	place   placement.Options
}

// Reconcile implements reconcile.Reconciler. The name of a request is a namespace's.
func (a *accounts) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return a.retries.after(req, reconcile.Result{}, a.reconcile(ctx, req.Name))
}

func (a *accounts) reconcile(ctx context.Context, namespace string) error {
	account, err := a.tenants.served(ctx, namespace)
	if err != nil {
		return err
	}
	if err := a.refuseOthers(ctx, namespace, account); err != nil {
		return err
	}
	all, err := readContent(ctx, a.client, namespace)
	if err != nil {
		return err
	}
	if account == nil {
		return a.report(ctx, all, nil, no(api.ReasonNoAccount, "there is no WorkerAccount in namespace "+namespace))
	}
	after := account.DeepCopy()
	after.Status.ObservedGeneration = account.Generation
	if err := a.route(ctx, after); err != nil {
		return err
	}
	served, built, err := a.serve(ctx, after, all)
	p, wrong := errors.AsType[*problem](err)
	switch {
	case wrong:
		set(&after.Status.Conditions, api.ConditionAccepted, account.Generation, no(p.reason, p.Error()))
		built = unknown(api.ReasonWaiting, p.Error())
	case err != nil: // a host that was withdrawn waits for nothing
		return errors.Join(err, patchStatus(ctx, a.client, account, after))
	default:
		set(&after.Status.Conditions, api.ConditionAccepted, account.Generation, yes(api.ReasonAccepted, "account "+after.Status.Account))
	}
	set(&after.Status.Conditions, api.ConditionBuilt, account.Generation, built)
	if err := patchStatus(ctx, a.client, account, after); err != nil {
		return err
	}
	return a.report(ctx, all, served, built)
}

// refuseOthers says of every WorkerAccount but the served one that it is not.
func (a *accounts) refuseOthers(ctx context.Context, namespace string, served *accountv1alpha1.WorkerAccount) error {
	var list accountv1alpha1.WorkerAccountList
	if err := a.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list WorkerAccounts: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if terminating(other) || served == nil || other.Name == served.Name {
			continue
		}
		after := other.DeepCopy()
		after.Status.ObservedGeneration, after.Status.Host = other.Generation, ""
		meta.RemoveStatusCondition(&after.Status.Conditions, api.ConditionRouted)
		set(&after.Status.Conditions, api.ConditionAccepted, other.Generation,
			no(api.ReasonAccountTaken, "WorkerAccount "+served.Name+" is older, and a namespace has one account"))
		if err := patchStatus(ctx, a.client, other, after); err != nil {
			return err
		}
	}
	return nil
}

// route gives an account its host, where the operator makes routes, and writes the condition.
// Bundles have routes of the host that the status says: one place decides whose it is.
func (a *accounts) route(ctx context.Context, account *accountv1alpha1.WorkerAccount) error {
	account.Status.Host = ""
	if a.place.Route == placement.RouteNone {
		meta.RemoveStatusCondition(&account.Status.Conditions, api.ConditionRouted)
		return nil
	}
	host, err := a.tenants.host(ctx, account.Namespace, a.place.HostSuffix)
	p, wrong := errors.AsType[*problem](err)
	switch {
	case wrong:
		set(&account.Status.Conditions, api.ConditionRouted, account.Generation, no(p.reason, p.Error()))
	case err != nil:
		return err
	default:
		account.Status.Host = host
		set(&account.Status.Conditions, api.ConditionRouted, account.Generation, yes(api.ReasonRouted, "host "+host))
	}
	return nil
}

// serve has the bundle of an account follow its releases, as far as they are built, and
// returns it. The verdict is about what they ask for.
func (a *accounts) serve(ctx context.Context, account *accountv1alpha1.WorkerAccount, all content) (*bundlev1alpha1.WorkerBundle, verdict, error) {
	var err error
	if account.Status.Account, err = a.tenants.of(ctx, account.Namespace); err != nil {
		return nil, verdict{}, err
	}
	b, err := a.bundle(ctx, account)
	if err != nil {
		return nil, verdict{}, err
	}
	chosen, err := choose(account, b, all)
	if err != nil {
		return b, verdict{}, err
	}
	if len(chosen) == 0 {
		if err := a.update(ctx, b, account, nil, ""); err != nil {
			return b, verdict{}, err
		}
		return b, unknown(api.ReasonWaiting, "there is no release to serve"), a.forget(ctx, "", b, all)
	}
	in, err := inputOf(account.Status.Account, chosen)
	if err != nil {
		return b, verdict{}, err
	}
	wanted := a.spec(account.Status.Account, b, in, chosen)
	builder, built, err := a.build(ctx, b, wanted)
	if err != nil {
		return b, built, err
	}
	if builder != nil && len(builder.Status.Rejected) > 0 {
		return b, built, a.reject(ctx, builder, chosen)
	}
	if builder != nil && builder.Status.Image != "" && built.status == metav1.ConditionTrue {
		image := a.pull + "/" + account.Status.Account + "@" + digestOf(builder.Status.Image)
		if err := a.update(ctx, b, account, workersOf(in, chosen), image); err != nil {
			return b, built, err
		}
	}
	return b, built, a.forget(ctx, wanted.Name, b, all)
}

// bundle returns the bundle of an account, and makes it if there is none.
func (a *accounts) bundle(ctx context.Context, account *accountv1alpha1.WorkerAccount) (*bundlev1alpha1.WorkerBundle, error) {
	b := &bundlev1alpha1.WorkerBundle{}
	err := a.client.Get(ctx, types.NamespacedName{Namespace: account.Namespace, Name: account.Spec.WorkerBundleName}, b)
	switch {
	case err == nil && metav1.IsControlledBy(b, account) && !terminating(b):
		return b, a.sameAccount(ctx, b, account.Status.Account)
	case err == nil:
		return nil, problemf(api.ReasonNameTaken, "WorkerBundle %s exists and is not of this account, or is being deleted", b.Name)
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

// sameAccount deletes the bundle of an account that the namespace does not have any more: its
// works and images are that account's.
func (a *accounts) sameAccount(ctx context.Context, b *bundlev1alpha1.WorkerBundle, account string) error {
	old := b.Spec.Account
	if old == account {
		return nil
	}
	if err := deleteObject(ctx, a.client, "WorkerBundle", b, client.Preconditions{UID: &b.UID}); err != nil {
		return err
	}
	return problemf(api.ReasonWaiting, "WorkerBundle %s of account %q is being deleted first", b.Name, old)
}

// update writes what a bundle serves, if it is not that already.
func (a *accounts) update(ctx context.Context, b *bundlev1alpha1.WorkerBundle, account *accountv1alpha1.WorkerAccount, workers []bundlev1alpha1.Worker, image string) error {
	before := b.DeepCopy()
	if old := b.Spec.PodTemplate.Image; old != image && old != "" {
		if b.Annotations == nil {
			b.Annotations = map[string]string{}
		}
		b.Annotations[api.AnnotationLastImage] = old
	}
	b.Spec.Workers = workers
	b.Spec.PodTemplate = bundlev1alpha1.PodTemplate{Image: image, ImagePullSecret: account.Spec.PodTemplate.ImagePullSecret}
	if sameBundle(before, b) {
		return nil
	}
	if err := a.client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write WorkerBundle %s: %w", b.Name, err)
	}
	if before.Spec.PodTemplate.Image != image {
		a.events.normal(b, "ImageChanged", "image "+image)
	}
	return nil
}

// reject writes to releases that they cannot be built. Another choice follows.
func (a *accounts) reject(ctx context.Context, builder *builderv1alpha1.JobBuilder, chosen []*releasev1alpha1.WorkerRelease) error {
	for _, rejected := range builder.Status.Rejected {
		for _, r := range chosen {
			if r.Spec.ScriptName != rejected.ScriptName {
				continue
			}
			after := r.DeepCopy()
			reason := cmp.Or(rejected.Reason, api.ReasonRejected)
			set(&after.Status.Conditions, api.ConditionAccepted, r.Generation, no(reason, rejected.Message))
			if err := patchStatus(ctx, a.client, r, after); err != nil {
				return err
			}
			a.events.warning(after, reason, rejected.Message)
			if reason == api.ReasonRejected {
				continue
			}
			// What is missing may come back, and is to be built then.
			if err := deleteObject(ctx, a.client, "JobBuilder", builder); err != nil {
				return err
			}
		}
	}
	return nil
}
