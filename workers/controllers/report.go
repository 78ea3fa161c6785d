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

// report tells each WorkerDeployment what became of it: a bundle, which may be nil, serves,
// and the verdict is about the build of what is asked for.
func (a *accounts) report(ctx context.Context, all content, served *bundlev1alpha1.WorkerBundle, built verdict) error {
	for i := range all.deployments {
		wd := &all.deployments[i]
		after := wd.DeepCopy()
		after.Status.Served = ""
		if served != nil {
			after.Status.Served = servedRelease(served, wd.Spec.Template.ScriptName)
		}
		if r := all.release(after.Status.Served); r == nil || !isOf(r.OwnerReferences, wd.UID) {
			after.Status.Served = ""
		}
		set(&after.Status.Conditions, api.ConditionBuilt, wd.Generation, builtOf(after, all, built))
		set(&after.Status.Conditions, api.ConditionReady, wd.Generation, readyOf(after, served))
		if err := patchStatus(ctx, a.client, wd, after); err != nil {
			return err
		}
		if before := wd.Status.Conditions; meta.IsStatusConditionTrue(after.Status.Conditions, api.ConditionReady) && !meta.IsStatusConditionTrue(before, api.ConditionReady) {
			a.events.normal(after, api.ReasonServed, "release "+after.Status.Served+" is served in all clusters")
		}
	}
	return nil
}

// builtOf says whether the current release of a WorkerDeployment is in an image.
func builtOf(wd *deploymentv1alpha1.WorkerDeployment, all content, built verdict) verdict {
	current := all.release(wd.Status.Release)
	switch {
	case current == nil:
		return unknown(api.ReasonWaiting, "there is no release yet")
	case meta.IsStatusConditionFalse(current.Status.Conditions, api.ConditionAccepted):
		c := meta.FindStatusCondition(current.Status.Conditions, api.ConditionAccepted)
		return no(c.Reason, c.Message)
	case wd.Status.Served == wd.Status.Release:
		return yes(api.ReasonBuilt, "release "+current.Name)
	case built.reason == api.ReasonBuilt: // of what is asked for, which does not select it
		return unknown(api.ReasonWaiting, "the WorkerAccount does not select release "+current.Name)
	default:
		return built
	}
}

// readyOf says whether every cluster serves what a WorkerDeployment asks for.
func readyOf(wd *deploymentv1alpha1.WorkerDeployment, served *bundlev1alpha1.WorkerBundle) verdict {
	conditions := wd.Status.Conditions
	accepted := meta.FindStatusCondition(conditions, api.ConditionAccepted)
	current := wd.Status.Served != "" && wd.Status.Served == wd.Status.Release
	switch {
	case current && is(conditions, api.ConditionAccepted, wd.Generation):
		return readyOfBundle(served)
	case wd.Status.Served == "":
		return no(api.ReasonWaiting, "nothing of it is served yet")
	case accepted != nil && accepted.Status != "True":
		return no(api.ReasonPreviousServed, "release "+wd.Status.Served+" is served: "+accepted.Message)
	default:
		why := meta.FindStatusCondition(conditions, api.ConditionBuilt)
		return no(api.ReasonPreviousServed, "release "+wd.Status.Served+" is served: "+why.Message)
	}
}

func readyOfBundle(b *bundlev1alpha1.WorkerBundle) verdict {
	c := meta.FindStatusCondition(b.Status.Conditions, api.ConditionReady)
	if c == nil || c.ObservedGeneration != b.Generation {
		return no(api.ReasonClustersNotReady, "the clusters have not been told yet")
	}
	return verdict{status: c.Status, reason: c.Reason, message: c.Message}
}
