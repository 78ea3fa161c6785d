// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
)

// listWorks returns the works of a bundle, by cluster, and others with the same name. Labels do not
// prove ownership: anyone who may write works in a cluster's namespace can set them.
func (b *bundleReconciler) listWorks(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) (mine, others map[string]*workv1.ManifestWork, err error) {
	var all workv1.ManifestWorkList
	if err := b.client.List(ctx, &all, client.MatchingFields{indexName: placement.Name(bundle.Spec.Account)}); err != nil {
		return nil, nil, fmt.Errorf("list ManifestWorks: %w", err)
	}
	mine, others = map[string]*workv1.ManifestWork{}, map[string]*workv1.ManifestWork{}
	for i := range all.Items {
		w := &all.Items[i]
		if isWorkOf(w, bundle) {
			mine[w.Namespace] = w
		} else {
			others[w.Namespace] = w
		}
	}
	return mine, others, nil
}

// isWorkOf reports whether a work was created for a bundle.
func isWorkOf(w *workv1.ManifestWork, bundle *bundlev1alpha1.WorkerBundle) bool {
	return w.Annotations[api.AnnotationBundle] == string(bundle.UID)
}

// applyWorks writes the works of clusters. A statusError concerns all clusters.
func (b *bundleReconciler) applyWorks(ctx context.Context, p placement.Placement, clusters []string, works, others map[string]*workv1.ManifestWork) ([]bundlev1alpha1.ClusterStatus, *statusError, error) {
	var errs []error
	status := make([]bundlev1alpha1.ClusterStatus, 0, len(clusters))
	for _, cluster := range clusters {
		p.Cluster, p.Before = cluster, works[cluster]
		wanted, err := placement.Work(p)
		if err != nil {
			return nil, &statusError{reason: api.ReasonInvalid, err: err}, errors.Join(errs...)
		}
		s, err := b.applyWork(ctx, p, wanted, others[cluster])
		status, errs = append(status, s), append(errs, err)
	}
	return status, nil, errors.Join(errs...)
}

// applyWork writes the work of one cluster, if it changed, and returns the status of the cluster.
func (b *bundleReconciler) applyWork(ctx context.Context, p placement.Placement, wanted, other *workv1.ManifestWork) (bundlev1alpha1.ClusterStatus, error) {
	if other != nil { // the deletion of the other work is an event
		return conflictStatus(other), nil
	}
	work, err := b.writeWork(ctx, wanted, p.Before)
	switch {
	case apierrors.IsConflict(err):
		return placement.Status(p.Before, placement.Revision(p)), err
	case apierrors.IsAlreadyExists(err):
		return b.explainExists(ctx, p, wanted, err)
	case err != nil:
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: err.Error()}, err
	}
	return placement.Status(work, placement.Revision(p)), nil
}

// explainExists returns the status for a work that already exists: it is not in the cache yet, or
// belongs to someone else. The cache has no such work, so the error causes a retry.
func (b *bundleReconciler) explainExists(ctx context.Context, p placement.Placement, wanted *workv1.ManifestWork, exists error) (bundlev1alpha1.ClusterStatus, error) {
	work := &workv1.ManifestWork{}
	if err := b.apiReader.Get(ctx, client.ObjectKeyFromObject(wanted), work); err != nil {
		err = fmt.Errorf("read ManifestWork %s: %w", wanted.Name, err)
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: err.Error()}, err
	}
	if isWorkOf(work, p.Bundle) {
		return placement.Status(work, placement.Revision(p)), exists
	}
	return conflictStatus(work), exists
}

// explainExists is what is said of a cluster where another has the name. Whose it is the account
// does not learn.
func conflictStatus(other *workv1.ManifestWork) bundlev1alpha1.ClusterStatus {
	s := bundlev1alpha1.ClusterStatus{Name: other.Namespace, Message: "another WorkerBundle is being removed from it first"}
	if other.Annotations[api.AnnotationBundle] == "" {
		s.Message = "ManifestWork " + other.Name + " is there, and not the operator's: delete it"
	}
	return s
}

// writeWork creates or updates a work, if it differs.
func (b *bundleReconciler) writeWork(ctx context.Context, wanted, existing *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	switch {
	case existing == nil:
		if err := b.client.Create(ctx, wanted); err != nil {
			return nil, fmt.Errorf("create ManifestWork %s: %w", wanted.Name, err)
		}
		return wanted, nil
	case isDeleting(existing) || equality.Semantic.DeepEqual(existing.Spec, wanted.Spec) && containsAll(wanted.Labels, existing.Labels):
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

func containsAll(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return true
}

// deleteWorks deletes works and returns the status of each cluster.
func (b *bundleReconciler) deleteWorks(ctx context.Context, works map[string]*workv1.ManifestWork) ([]bundlev1alpha1.ClusterStatus, error) {
	var errs []error
	left := make([]bundlev1alpha1.ClusterStatus, 0, len(works))
	for _, cluster := range slices.Sorted(maps.Keys(works)) {
		s := bundlev1alpha1.ClusterStatus{Name: cluster, Message: "its work is being deleted"}
		if w := works[cluster]; !isDeleting(w) {
			if err := deleteObject(ctx, b.client, "ManifestWork", w, client.Preconditions{UID: &w.UID}); err != nil {
				s.Message, errs = err.Error(), append(errs, err)
			}
		}
		left = append(left, s)
	}
	return left, errors.Join(errs...)
}
