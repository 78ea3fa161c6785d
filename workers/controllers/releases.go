// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// releaseReconciler looks at WorkerReleases that were made by hand.
type releaseReconciler struct {
	client    client.Client
	apiReader client.Reader // of Secrets
	tenants   tenantReader
	store     Store
	events    eventRecorder
	retries   retryPolicy
}

// Reconcile implements reconcile.Reconciler.
func (r *releaseReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.retries.result(req, reconcile.Result{}, r.reconcile(ctx, req.NamespacedName))
}

func (r *releaseReconciler) reconcile(ctx context.Context, key types.NamespacedName) error {
	release := &releasev1alpha1.WorkerRelease{}
	if err := r.client.Get(ctx, key, release); err != nil {
		return client.IgnoreNotFound(err)
	}
	settled := meta.IsStatusConditionTrue(release.Status.Conditions, api.ConditionAccepted) || hasReason(release.Status.Conditions, api.ConditionAccepted, api.ReasonRejected)
	if isDeleting(release) || metav1.GetControllerOf(release) != nil || settled {
		return nil
	}
	after := release.DeepCopy()
	after.Status.ObservedGeneration = release.Generation
	err := r.resolve(ctx, after)
	p, wrong := errors.AsType[*statusError](err)
	switch {
	case wrong:
		setCondition(&after.Status.Conditions, api.ConditionAccepted, release.Generation, conditionFalse(p.reason, p.Error()))
		if !hasReason(release.Status.Conditions, api.ConditionAccepted, p.reason) {
			r.events.warning(after, p.reason, p.Error())
		}
	case err != nil:
		return err
	default:
		setCondition(&after.Status.Conditions, api.ConditionAccepted, release.Generation, conditionTrue(api.ReasonAccepted, ""))
	}
	if err := patchStatus(ctx, r.client, release, after); err != nil {
		return err
	}
	if p != nil && p.isTransient() {
		return p // again, after a while
	}
	return nil
}

// resolve finds the modules and the secrets of a release.
func (r *releaseReconciler) resolve(ctx context.Context, release *releasev1alpha1.WorkerRelease) error {
	account, err := r.tenants.account(ctx, release.Namespace)
	if err != nil {
		return err
	}
	secrets, err := getScriptSecrets(ctx, r.apiReader, release.Namespace, release.Spec.Script)
	if err != nil {
		return err
	}
	if len(release.Spec.Modules) == 0 {
		if release.Status.Modules, err = listModules(ctx, r.store, account, script.URLs(release.Spec.Script)); err != nil {
			return err
		}
	}
	release.Status.SecretKeys = slices.Sorted(maps.Keys(secrets))
	if _, err := newInput(account, []*releasev1alpha1.WorkerRelease{release}); err != nil {
		return err
	}
	if _, _, err := getSecretCopy(ctx, r.apiReader, release); err != nil {
		return err
	}
	if err := createSecretCopy(ctx, r.client, release, secrets); err != nil {
		return fmt.Errorf("release %s: %w", release.Name, err)
	}
	return nil
}
