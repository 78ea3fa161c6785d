// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/spokelet/spokelet/workers/api"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
)

// updateDeploymentStatuses writes the status of each WorkerDeployment. The bundle, which may be nil,
// serves, and built is the condition of the build of the current releases.
func (a *accountReconciler) updateDeploymentStatuses(ctx context.Context, all namespaceObjects, served *bundlev1alpha1.WorkerBundle, built conditionState) error {
	for i := range all.deployments {
		wd := &all.deployments[i]
		after := wd.DeepCopy()
		after.Status.Served = ""
		if served != nil {
			after.Status.Served = servedRelease(served, wd.Spec.Template.ScriptName)
		}
		if r := all.findRelease(after.Status.Served); r == nil || !hasOwner(r.OwnerReferences, wd.UID) {
			after.Status.Served = ""
		}
		setCondition(&after.Status.Conditions, api.ConditionBuilt, wd.Generation, deploymentBuilt(after, all, built))
		setCondition(&after.Status.Conditions, api.ConditionReady, wd.Generation, deploymentReady(after, served))
		if err := patchStatus(ctx, a.client, wd, after); err != nil {
			return err
		}
		if before := wd.Status.Conditions; meta.IsStatusConditionTrue(after.Status.Conditions, api.ConditionReady) && !meta.IsStatusConditionTrue(before, api.ConditionReady) {
			a.events.normal(after, api.ReasonServed, "release "+after.Status.Served+" is served in all clusters")
		}
	}
	return nil
}

// deploymentBuilt returns whether the current release of a WorkerDeployment is in an image.
func deploymentBuilt(wd *deploymentv1alpha1.WorkerDeployment, all namespaceObjects, built conditionState) conditionState {
	current := all.findRelease(wd.Status.Release)
	switch {
	case current == nil:
		return conditionUnknown(api.ReasonWaiting, "there is no release yet")
	case meta.IsStatusConditionFalse(current.Status.Conditions, api.ConditionAccepted):
		c := meta.FindStatusCondition(current.Status.Conditions, api.ConditionAccepted)
		return conditionFalse(c.Reason, c.Message)
	case wd.Status.Served == wd.Status.Release:
		return conditionTrue(api.ReasonBuilt, "release "+current.Name)
	case built.reason == api.ReasonBuilt: // the build does not contain this release
		return conditionUnknown(api.ReasonWaiting, "the WorkerAccount does not select release "+current.Name)
	default:
		return built
	}
}

// deploymentReady returns whether every cluster serves the current release.
func deploymentReady(wd *deploymentv1alpha1.WorkerDeployment, served *bundlev1alpha1.WorkerBundle) conditionState {
	conditions := wd.Status.Conditions
	accepted := meta.FindStatusCondition(conditions, api.ConditionAccepted)
	current := wd.Status.Served != "" && wd.Status.Served == wd.Status.Release
	switch {
	case current && isTrueForGeneration(conditions, api.ConditionAccepted, wd.Generation):
		return bundleReady(served)
	case wd.Status.Served == "":
		return conditionFalse(api.ReasonWaiting, "nothing of it is served yet")
	case accepted != nil && accepted.Status != "True":
		return conditionFalse(api.ReasonPreviousServed, "release "+wd.Status.Served+" is served: "+accepted.Message)
	default:
		why := meta.FindStatusCondition(conditions, api.ConditionBuilt)
		return conditionFalse(api.ReasonPreviousServed, "release "+wd.Status.Served+" is served: "+why.Message)
	}
}

func bundleReady(b *bundlev1alpha1.WorkerBundle) conditionState {
	c := meta.FindStatusCondition(b.Status.Conditions, api.ConditionReady)
	if c == nil || c.ObservedGeneration != b.Generation {
		return conditionFalse(api.ReasonClustersNotReady, "the works of the clusters are not written yet")
	}
	return conditionState{status: c.Status, reason: c.Reason, message: c.Message}
}
