// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// The event of the release may come after that of the WorkerDeployment which has it.
func TestServedReleaseStaysUntilNextIsCached(t *testing.T) {
	all := namespaceObjects{
		deployments: []deploymentv1alpha1.WorkerDeployment{{
			Spec:   deploymentv1alpha1.WorkerDeploymentSpec{Template: releasev1alpha1.Script{ScriptName: "hello"}},
			Status: deploymentv1alpha1.WorkerDeploymentStatus{Release: "hello-2", Served: "hello-1"},
		}},
		releases: []releasev1alpha1.WorkerRelease{{
			ObjectMeta: metav1.ObjectMeta{Name: "hello-1"},
			Spec:       releasev1alpha1.WorkerReleaseSpec{Script: releasev1alpha1.Script{ScriptName: "hello"}},
		}},
	}
	all.releases[0].OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&all.deployments[0], deploymentv1alpha1.GroupVersion.WithKind("WorkerDeployment"))}
	setCondition(&all.releases[0].Status.Conditions, api.ConditionAccepted, 0, conditionTrue(api.ReasonAccepted, ""))
	served := &bundlev1alpha1.WorkerBundle{Spec: bundlev1alpha1.WorkerBundleSpec{Workers: []bundlev1alpha1.Worker{{WorkerName: "hello", Release: "hello-1"}}}}
	chosen, err := selectReleases(&accountv1alpha1.WorkerAccount{}, served, all)
	if err != nil || len(chosen) != 1 || chosen[0].Name != "hello-1" {
		t.Errorf("chosen are %v, %v", chosen, err)
	}
}
