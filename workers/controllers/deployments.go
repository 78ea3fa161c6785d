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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/store"
)

// deploymentReconciler creates releases of WorkerDeployments.
type deploymentReconciler struct{ base }

func (d *deploymentReconciler) reconcile(ctx context.Context, key types.NamespacedName) error {
	wd := &deploymentv1alpha1.WorkerDeployment{}
	if err := d.client.Get(ctx, key, wd); err != nil || isDeleting(wd) {
		return client.IgnoreNotFound(err)
	}
	after := wd.DeepCopy()
	after.Status.ObservedGeneration = wd.Generation
	current, err := d.resolveRelease(ctx, wd)
	if err == nil {
		after.Status.Release, after.Status.Revision = current.Name, current.Status.Revision
	}
	rejected, err := setFromError(&after.Status.Conditions, api.ConditionAccepted, wd.Generation, err, conditionTrue(api.ReasonAccepted, "release "+after.Status.Release))
	if err != nil {
		return err
	}
	if err := patchStatus(ctx, d.client, wd, after); err != nil {
		return err
	}
	d.recordEvents(wd, after, rejected)
	return rejected.retry()
}

// recordEvents records an event when the release or the reason of a failure changed.
func (d *deploymentReconciler) recordEvents(before, after *deploymentv1alpha1.WorkerDeployment, p *statusError) {
	switch {
	case p != nil && !hasReason(before.Status.Conditions, api.ConditionAccepted, p.reason):
		d.events.warning(after, p.reason, p.Error())
	case p == nil && before.Status.Release != after.Status.Release:
		d.events.normal(after, "Released", "release "+after.Status.Release+" is current")
	}
}

// resolveRelease returns the release of the spec, and creates it if there is none. A *statusError
// says why there can be none.
func (d *deploymentReconciler) resolveRelease(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment) (*releasev1alpha1.WorkerRelease, error) {
	account, err := d.tenants.account(ctx, wd.Namespace)
	if err != nil {
		return nil, err
	}
	if err := d.validateScriptUnique(ctx, wd); err != nil {
		return nil, err
	}
	template := wd.Spec.Template
	template.CompatibilityDate, err = script.Date(template.CompatibilityDate)
	if err != nil {
		return nil, &statusError{reason: api.ReasonInvalid, err: fmt.Errorf("compatibilityDate: %w", err)}
	}
	secrets, err := getScriptSecrets(ctx, d.apiReader, wd.Namespace, template)
	if err != nil {
		return nil, err
	}
	releases, err := listOwnedReleases(ctx, d.client, wd)
	if err != nil {
		return nil, err
	}
	modules, err := d.resolveModules(ctx, account, wd, releases)
	if err != nil {
		return nil, err
	}
	worker, err := script.New(template, modules, slices.Sorted(maps.Keys(secrets)))
	if err != nil {
		return nil, &statusError{reason: api.ReasonInvalid, err: err}
	}
	if err := d.validateVariablesUnique(ctx, wd, worker); err != nil {
		return nil, err
	}
	template.ScriptURLs, template.ScriptsURLs = script.URLs(template), nil
	wanted := desiredRelease{account: account, spec: releasev1alpha1.WorkerReleaseSpec{Script: template, Modules: modules}, worker: worker, secrets: secrets}
	return d.ensureRelease(ctx, wd, wanted, releases)
}

// validateScriptUnique returns an error if an older WorkerDeployment has the same script, or one
// whose Service has the same name.
func (d *deploymentReconciler) validateScriptUnique(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment) error {
	var list deploymentv1alpha1.WorkerDeploymentList
	if err := listIn(ctx, d.client, &list, wd.Namespace); err != nil {
		return err
	}
	mine := script.ServiceName(wd.Spec.Template.ScriptName)
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == wd.Name || script.ServiceName(other.Spec.Template.ScriptName) != mine || compareAge(other, wd) > 0 {
			continue
		}
		return newStatusError(api.ReasonNameTaken, "scriptName %s: WorkerDeployment %s has script %s, which is served under the same name",
			wd.Spec.Template.ScriptName, other.Name, other.Spec.Template.ScriptName)
	}
	return nil
}

// validateVariablesUnique returns an error if a secret of a script has the same environment variable
// as one of an older WorkerDeployment: they run in one process, and key B_C of script a is A_B_C, as
// is key C of script a-b.
func (d *deploymentReconciler) validateVariablesUnique(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, worker script.Worker) error {
	all, err := listNamespaceObjects(ctx, d.client, wd.Namespace)
	if err != nil {
		return err
	}
	for i := range all.deployments {
		other := &all.deployments[i]
		r := all.findRelease(other.Status.Release)
		if r == nil || other.Name == wd.Name || compareAge(other, wd) > 0 {
			continue
		}
		for _, key := range r.Status.SecretKeys {
			variable := script.EnvPrefix(r.Spec.ScriptName) + key
			if slices.ContainsFunc(worker.Bindings, func(b script.Binding) bool { return b.Variable == variable }) {
				return newStatusError(api.ReasonNameTaken, "secretRef: script %s has the variable %s already", r.Spec.ScriptName, variable)
			}
		}
	}
	return nil
}

// resolveModules returns the modules at the URLs. The store is listed once for each generation:
// the modules of a release do not change.
func (d *deploymentReconciler) resolveModules(ctx context.Context, account string, wd *deploymentv1alpha1.WorkerDeployment, releases []releasev1alpha1.WorkerRelease) ([]releasev1alpha1.Module, error) {
	if isTrueForGeneration(wd.Status.Conditions, api.ConditionAccepted, wd.Generation) {
		for i := range releases {
			if releases[i].Name == wd.Status.Release && releases[i].Labels[api.LabelAccount] == account {
				return releases[i].Spec.Modules, nil
			}
		}
	}
	return listModules(ctx, d.Store, account, script.URLs(wd.Spec.Template))
}

// listModules lists the store. Its errors are *statusErrors.
func listModules(ctx context.Context, from Store, account string, urls []string) ([]releasev1alpha1.Module, error) {
	modules, err := from.List(ctx, account, urls)
	switch {
	case err == nil:
		return modules, nil
	case errors.Is(err, store.ErrUnavailable):
		return nil, &statusError{reason: api.ReasonStoreUnavailable, err: err}
	case errors.Is(err, store.ErrMissing):
		return nil, &statusError{reason: api.ReasonScriptsMissing, err: err}
	default:
		return nil, &statusError{reason: api.ReasonInvalid, err: err}
	}
}

// getScriptSecrets returns the data of the Secret that a script names, if any. The Secret has to
// have the label of the script: users who may write scripts can name any Secret of the namespace,
// and must not learn whether another one exists.
func getScriptSecrets(ctx context.Context, from client.Reader, namespace string, of releasev1alpha1.Script) (map[string][]byte, error) {
	if of.SecretRef == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: of.SecretRef}, secret)
	switch {
	case apierrors.IsNotFound(err), err == nil && secret.Labels[api.LabelScript] != of.ScriptName:
		return nil, newStatusError(api.ReasonSecretMissing, "secretRef: there is no Secret %s with the label %s=%s in namespace %s", of.SecretRef, api.LabelScript, of.ScriptName, namespace)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return nil, newStatusError(api.ReasonInvalid, "secretRef: %s is no name of a Secret", of.SecretRef)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", of.SecretRef, err)
	}
	return secret.Data, nil
}
