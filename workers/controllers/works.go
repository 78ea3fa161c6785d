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

// works returns those of a bundle, by cluster, and others that have their name. Labels say
// nothing of whose a work is: whoever may write works in one cluster's namespace sets them.
func (b *bundles) works(ctx context.Context, bundle *bundlev1alpha1.WorkerBundle) (mine, others map[string]*workv1.ManifestWork, err error) {
	var all workv1.ManifestWorkList
	if err := b.client.List(ctx, &all, client.MatchingFields{indexName: placement.Name(bundle.Spec.Account)}); err != nil {
		return nil, nil, fmt.Errorf("list ManifestWorks: %w", err)
	}
	mine, others = map[string]*workv1.ManifestWork{}, map[string]*workv1.ManifestWork{}
	for i := range all.Items {
		w := &all.Items[i]
		if places(w, bundle) {
			mine[w.Namespace] = w
		} else {
			others[w.Namespace] = w
		}
	}
	return mine, others, nil
}

// places tells whether a work, which has the name of an account's, is that of a bundle.
func places(w *workv1.ManifestWork, bundle *bundlev1alpha1.WorkerBundle) bool {
	return w.Annotations[api.AnnotationBundle] == string(bundle.UID)
}

// applyWorks writes the works of clusters. The problem is what none of them could be told.
func (b *bundles) applyWorks(ctx context.Context, p placement.Placement, clusters []string, works, others map[string]*workv1.ManifestWork) ([]bundlev1alpha1.ClusterStatus, *problem, error) {
	var errs []error
	status := make([]bundlev1alpha1.ClusterStatus, 0, len(clusters))
	for _, cluster := range clusters {
		p.Cluster, p.Before = cluster, works[cluster]
		wanted, err := placement.Work(p)
		if err != nil {
			return nil, &problem{reason: api.ReasonInvalid, err: err}, errors.Join(errs...)
		}
		s, err := b.applyWork(ctx, p, wanted, others[cluster])
		status, errs = append(status, s), append(errs, err)
	}
	return status, nil, errors.Join(errs...)
}

// applyWork writes the work of one cluster, if it is not that already, and returns what the
// cluster says.
func (b *bundles) applyWork(ctx context.Context, p placement.Placement, wanted, other *workv1.ManifestWork) (bundlev1alpha1.ClusterStatus, error) {
	if other != nil { // its deletion is an event
		return inTheWay(other), nil
	}
	work, err := b.write(ctx, wanted, p.Before)
	switch {
	case apierrors.IsConflict(err):
		return placement.Status(p.Before, placement.Revision(p)), err
	case apierrors.IsAlreadyExists(err):
		return b.found(ctx, p, wanted, err)
	case err != nil:
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: err.Error()}, err
	}
	return placement.Status(work, placement.Revision(p)), nil
}

// found is what an error means that a work exists: it is in no cache yet, or somebody else's.
// The cache has none of those: it is tried again.
func (b *bundles) found(ctx context.Context, p placement.Placement, wanted *workv1.ManifestWork, exists error) (bundlev1alpha1.ClusterStatus, error) {
	work := &workv1.ManifestWork{}
	if err := b.live.Get(ctx, client.ObjectKeyFromObject(wanted), work); err != nil {
		err = fmt.Errorf("read ManifestWork %s: %w", wanted.Name, err)
		return bundlev1alpha1.ClusterStatus{Name: p.Cluster, Message: err.Error()}, err
	}
	if places(work, p.Bundle) {
		return placement.Status(work, placement.Revision(p)), exists
	}
	return inTheWay(work), exists
}

// inTheWay is what is said of a cluster where another has the name. Whose it is the account
// does not learn.
func inTheWay(other *workv1.ManifestWork) bundlev1alpha1.ClusterStatus {
	s := bundlev1alpha1.ClusterStatus{Name: other.Namespace, Message: "another WorkerBundle is being removed from it first"}
	if other.Annotations[api.AnnotationBundle] == "" {
		s.Message = "ManifestWork " + other.Name + " is there, and not the operator's: delete it"
	}
	return s
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

// remove deletes works, and says of each cluster how far that is.
func (b *bundles) remove(ctx context.Context, works map[string]*workv1.ManifestWork) ([]bundlev1alpha1.ClusterStatus, error) {
	var errs []error
	left := make([]bundlev1alpha1.ClusterStatus, 0, len(works))
	for _, cluster := range slices.Sorted(maps.Keys(works)) {
		s := bundlev1alpha1.ClusterStatus{Name: cluster, Message: "its work is being deleted"}
		if w := works[cluster]; !terminating(w) {
			if err := deleteObject(ctx, b.client, "ManifestWork", w, client.Preconditions{UID: &w.UID}); err != nil {
				s.Message, errs = err.Error(), append(errs, err)
			}
		}
		left = append(left, s)
	}
	return left, errors.Join(errs...)
}
