// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/script"
)

const (
	// labelContentHash, on a release, is of the code and its environment, without the values
	// of secrets.
	labelContentHash = "workers.spokelet.io/content"
	// defaultHistoryLimit is how many releases are kept if a WorkerDeployment does not say.
	defaultHistoryLimit = 10
	// hashDigits of a digest in a name.
	hashDigits = 10
)

// desiredRelease is a release as it should be.
type desiredRelease struct {
	account string
	spec    releasev1alpha1.WorkerReleaseSpec
	worker  script.Worker
	secrets map[string][]byte
}

// contentHash is the same for the same code and settings, wherever they are stored.
func (v desiredRelease) contentHash() string {
	return bundle.Input{Account: v.account, Workers: []script.Worker{v.worker}}.Digest()[:hashDigits]
}

// labels of the release: those of its WorkerDeployment, by which accounts select, and ours.
func (v desiredRelease) labels(wd *deploymentv1alpha1.WorkerDeployment) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, wd.Labels)
	labels[api.LabelAccount], labels[api.LabelScript], labels[labelContentHash] = v.account, v.worker.Name, v.contentHash()
	return labels
}

// listOwnedReleases returns the releases of a WorkerDeployment.
func listOwnedReleases(ctx context.Context, c client.Reader, wd *deploymentv1alpha1.WorkerDeployment) ([]releasev1alpha1.WorkerRelease, error) {
	var list releasev1alpha1.WorkerReleaseList
	if err := listIn(ctx, c, &list, wd.Namespace); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(r releasev1alpha1.WorkerRelease) bool {
		return !metav1.IsControlledBy(&r, wd) || isDeleting(&r)
	}), nil
}

// ensureRelease returns the release of a version, the one that there is or a new one.
func (d *deploymentReconciler) ensureRelease(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, wanted desiredRelease, releases []releasev1alpha1.WorkerRelease) (*releasev1alpha1.WorkerRelease, error) {
	current, err := d.findRelease(ctx, wanted, releases)
	if err == nil && current == nil {
		current, err = d.createRelease(ctx, wd, wanted, releases)
	}
	if err != nil {
		return nil, err
	}
	if err := createSecretCopy(ctx, d.client, current, wanted.secrets); err != nil {
		return nil, err
	}
	if err := d.updateLabels(ctx, current, wanted.labels(wd)); err != nil {
		return nil, err
	}
	if err := d.clearScriptsMissing(ctx, wd, current); err != nil {
		return nil, err
	}
	if err := d.assignRevision(ctx, wd, current, wanted, releases); err != nil {
		return nil, err
	}
	return current, d.pruneReleases(ctx, wd, current, releases)
}

// findRelease returns the release with the same content and secrets, or nil.
func (d *deploymentReconciler) findRelease(ctx context.Context, wanted desiredRelease, releases []releasev1alpha1.WorkerRelease) (*releasev1alpha1.WorkerRelease, error) {
	for i := range releases {
		r := &releases[i]
		if r.Labels[labelContentHash] != wanted.contentHash() || hasMoved(r, wanted) {
			continue
		}
		copied, found, err := getSecretCopy(ctx, d.apiReader, r)
		if err != nil {
			return nil, err
		}
		// The operator may have ended before it copied the Secret.
		if !found || maps.EqualFunc(copied, wanted.secrets, bytes.Equal) {
			return r.DeepCopy(), nil
		}
	}
	return nil, nil
}

// hasMoved reports whether the modules of a release are missing in the store, and the same content
// is stored elsewhere now.
func hasMoved(r *releasev1alpha1.WorkerRelease, wanted desiredRelease) bool {
	return hasReason(r.Status.Conditions, api.ConditionAccepted, api.ReasonScriptsMissing) && !slices.Equal(r.Spec.Modules, wanted.spec.Modules)
}

// createRelease creates a release. Its name contains the digest of its content, and the revision
// if it has secrets, so that no name is used again for other secrets.
func (d *deploymentReconciler) createRelease(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, wanted desiredRelease, releases []releasev1alpha1.WorkerRelease) (*releasev1alpha1.WorkerRelease, error) {
	r := &releasev1alpha1.WorkerRelease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: wd.Namespace, Name: releaseName(wd, wanted, releases), Labels: wanted.labels(wd),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(wd, deploymentv1alpha1.GroupVersion.WithKind("WorkerDeployment"))},
		},
		Spec: wanted.spec,
	}
	err := d.client.Create(ctx, r)
	if apierrors.IsAlreadyExists(err) {
		return nil, d.explainExists(ctx, wd, r.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("create WorkerRelease %s: %w", r.Name, err)
	}
	return r, nil
}

// explainExists returns the error for a release that already exists: it is not in the cache yet,
// or belongs to another owner.
func (d *deploymentReconciler) explainExists(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, name string, exists error) error {
	other := &releasev1alpha1.WorkerRelease{}
	if err := d.apiReader.Get(ctx, types.NamespacedName{Namespace: wd.Namespace, Name: name}, other); err != nil {
		return fmt.Errorf("read WorkerRelease %s: %w", name, err)
	}
	if metav1.IsControlledBy(other, wd) {
		return exists
	}
	return newStatusError(api.ReasonNameTaken, "WorkerRelease %s exists and is not of this WorkerDeployment: delete it", name)
}

// maxNamePrefix bounds what of a name is used in others.
const maxNamePrefix = 200

func truncateName(name string) string { return name[:min(len(name), maxNamePrefix)] }

func releaseName(wd *deploymentv1alpha1.WorkerDeployment, wanted desiredRelease, releases []releasev1alpha1.WorkerRelease) string {
	name := truncateName(wd.Name) + "-" + wanted.contentHash()
	taken := slices.ContainsFunc(releases, func(r releasev1alpha1.WorkerRelease) bool { return r.Name == name })
	if wanted.spec.SecretRef == "" && !taken {
		return name
	}
	return fmt.Sprintf("%s-%d", name, lastRevision(wd, releases)+1)
}

// lastRevision returns the highest revision of the releases of a WorkerDeployment.
func lastRevision(wd *deploymentv1alpha1.WorkerDeployment, releases []releasev1alpha1.WorkerRelease) int64 {
	last := wd.Status.Revision
	for i := range releases {
		last = max(last, releases[i].Status.Revision)
	}
	return last
}

// updateLabels copies the labels of the WorkerDeployment, which may have changed, to a release.
func (d *deploymentReconciler) updateLabels(ctx context.Context, r *releasev1alpha1.WorkerRelease, labels map[string]string) error {
	if maps.Equal(r.Labels, labels) {
		return nil
	}
	before := r.DeepCopy()
	r.Labels = labels
	return patchObject(ctx, d.client, "WorkerRelease", before, r)
}

// clearScriptsMissing sets Accepted to True on a release whose modules were missing, if the store
// was just listed and has them.
func (d *deploymentReconciler) clearScriptsMissing(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, r *releasev1alpha1.WorkerRelease) error {
	asked := !isTrueForGeneration(wd.Status.Conditions, api.ConditionAccepted, wd.Generation)
	if !asked || !hasReason(r.Status.Conditions, api.ConditionAccepted, api.ReasonScriptsMissing) {
		return nil
	}
	before := r.DeepCopy()
	setCondition(&r.Status.Conditions, api.ConditionAccepted, r.Generation, conditionTrue(api.ReasonAccepted, ""))
	return patchStatus(ctx, d.client, before, r)
}

// assignRevision assigns a new revision to a release that becomes the current one.
func (d *deploymentReconciler) assignRevision(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, r *releasev1alpha1.WorkerRelease, wanted desiredRelease, releases []releasev1alpha1.WorkerRelease) error {
	if wd.Status.Release == r.Name && r.Status.Revision > 0 {
		return nil
	}
	last := lastRevision(wd, releases)
	if r.Status.Revision > 0 && r.Status.Revision == last {
		return nil // the revision was assigned, but the status of the WorkerDeployment not written
	}
	before := r.DeepCopy()
	r.Status.Revision, r.Status.ObservedGeneration = last+1, r.Generation
	r.Status.SecretKeys = slices.Sorted(maps.Keys(wanted.secrets))
	if meta.FindStatusCondition(r.Status.Conditions, api.ConditionAccepted) == nil {
		setCondition(&r.Status.Conditions, api.ConditionAccepted, r.Generation, conditionTrue(api.ReasonAccepted, ""))
	}
	return patchStatus(ctx, d.client, before, r)
}

// pruneReleases deletes the oldest releases beyond the limit. The current and the served release
// stay and count first.
func (d *deploymentReconciler) pruneReleases(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, current *releasev1alpha1.WorkerRelease, releases []releasev1alpha1.WorkerRelease) error {
	limit := int(wd.Spec.ReleaseHistoryLimit)
	if limit <= 0 {
		limit = defaultHistoryLimit
	}
	rank := func(r releasev1alpha1.WorkerRelease) int64 {
		if r.Name == current.Name || r.Name == wd.Status.Served {
			return math.MaxInt64
		}
		return r.Status.Revision
	}
	newest := slices.Clone(releases)
	if !slices.ContainsFunc(newest, func(r releasev1alpha1.WorkerRelease) bool { return r.Name == current.Name }) {
		newest = append(newest, *current)
	}
	slices.SortFunc(newest, func(a, b releasev1alpha1.WorkerRelease) int { return cmp.Compare(rank(b), rank(a)) })
	for i := range newest {
		r := &newest[i]
		if i < limit || rank(*r) == math.MaxInt64 {
			continue
		}
		if err := deleteObject(ctx, d.client, "WorkerRelease", r, client.Preconditions{UID: &r.UID}); err != nil {
			return err
		}
	}
	return nil
}

// getSecretCopy returns the secrets of a release as they were when it was created. A release
// without a secretRef has none.
func getSecretCopy(ctx context.Context, from client.Reader, r *releasev1alpha1.WorkerRelease) (data map[string][]byte, found bool, err error) {
	if r.Spec.SecretRef == "" {
		return nil, true, nil
	}
	secret := &corev1.Secret{}
	err = from.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read Secret of WorkerRelease %s: %w", r.Name, err)
	}
	if !metav1.IsControlledBy(secret, r) {
		return nil, false, newStatusError(api.ReasonInvalid, "Secret %s is in the way of the copy for the release: delete it", r.Name)
	}
	return secret.Data, true, nil
}

// createSecretCopy copies the secrets of a release, so that a rollback serves them again.
func createSecretCopy(ctx context.Context, c client.Client, r *releasev1alpha1.WorkerRelease, secrets map[string][]byte) error {
	if r.Spec.SecretRef == "" {
		return nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name,
			Labels:          map[string]string{api.LabelAccount: r.Labels[api.LabelAccount], api.LabelScript: r.Spec.ScriptName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r, releasev1alpha1.GroupVersion.WithKind("WorkerRelease"))},
		},
		Immutable: new(true),
		Data:      secrets,
	}
	if err := c.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy Secret of WorkerRelease %s: %w", r.Name, err)
	}
	return nil
}
