// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// releaseReconciler accepts WorkerReleases that were created by hand.
type releaseReconciler struct{ base }

func (r *releaseReconciler) reconcile(ctx context.Context, key types.NamespacedName) error {
	release := &releasev1alpha1.WorkerRelease{}
	if err := r.client.Get(ctx, key, release); err != nil {
		return client.IgnoreNotFound(err)
	}
	decided := isUsable(release) || hasReason(release.Status.Conditions, api.ConditionAccepted, api.ReasonRejected)
	if isDeleting(release) || metav1.GetControllerOf(release) != nil || decided {
		return nil
	}
	after := release.DeepCopy()
	after.Status.ObservedGeneration = release.Generation
	rejected, err := setFromError(&after.Status.Conditions, api.ConditionAccepted, release.Generation, r.resolve(ctx, after), conditionTrue(api.ReasonAccepted, ""))
	if err != nil {
		return err
	}
	if rejected != nil && !hasReason(release.Status.Conditions, api.ConditionAccepted, rejected.reason) {
		r.events.warning(after, rejected.reason, rejected.Error())
	}
	if err := patchStatus(ctx, r.client, release, after); err != nil {
		return err
	}
	return rejected.retry()
}

// resolve sets the modules and the secret keys of a release, and copies its Secret.
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
		if release.Status.Modules, err = listModules(ctx, r.Store, account, script.URLs(release.Spec.Script)); err != nil {
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
