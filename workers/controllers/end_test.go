// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

func TestDeletedWorkerAccountRemovesItsObjects(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll() // a build runs when the account goes
	w.holdWorks(true)
	w.remove(&accountv1alpha1.WorkerAccount{ObjectMeta: object("1234")})
	w.reconcileAll()
	b := w.bundleOf(team)
	if len(b.Status.Clusters) != 2 || !hasReason(b.Status.Conditions, api.ConditionReady, api.ReasonWaiting) {
		t.Errorf("while clusters delete it the bundle says %+v", b.Status)
	}
	w.holdWorks(false)
	w.reconcileAll()
	left := map[string]int{
		"works": len(w.placed()), "bundles": len(w.list(&bundlev1alpha1.WorkerBundleList{})),
		"builders": w.count("builders"), "jobs": len(w.jobs()), "inputs": len(w.list(&corev1.ConfigMapList{})),
	}
	if diff := cmp.Diff(map[string]int{"works": 0, "bundles": 0, "builders": 0, "jobs": 0, "inputs": 0}, left); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"sha256:one": true}, w.registry.deleted); diff != "" {
		t.Errorf("deleted images (-want +got):\n%s", diff)
	}
	if got, want := w.expectCondition("hello"), "Accepted=True Accepted, Built=False NoAccount, Ready=False Waiting"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDeletedWorkerDeploymentRemovesReleasesAndSecrets(t *testing.T) {
	w := newWorld(t)
	value := secret("value")
	w.create(&value)
	w.code("1234/hello/1", "one")
	w.code("1234/other/1", "other")
	w.account()
	w.deploy("hello", "1234/hello/1", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.SecretRef = value.Name })
	w.deploy("other", "1234/other/1", nil)
	w.reconcileAll()
	w.runJob()
	w.remove(&deploymentv1alpha1.WorkerDeployment{ObjectMeta: object("hello")})
	w.reconcileAll()
	w.runJob()
	var secrets []string
	for _, o := range w.list(&corev1.SecretList{}) {
		secrets = append(secrets, o.GetName())
	}
	if diff := cmp.Diff([]string{value.Name}, secrets); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	if got := w.count("releases"); got != 1 {
		t.Errorf("there are %d releases", got)
	}
	if got := w.workers(); !slices.Equal(got, []string{"other 8080"}) {
		t.Errorf("what is served is %v", got)
	}
}

// workers are the scripts of the bundle and their ports.
func (w *world) workers() []string {
	w.t.Helper()
	var names []string
	for _, worker := range w.bundleOf(team).Spec.Workers {
		names = append(names, fmt.Sprintf("%s %d", worker.WorkerName, worker.WorkerNumber))
	}
	return names
}

// releases are the names of those that there are.
func (w *world) releases() []string {
	w.t.Helper()
	var names []string
	for _, o := range w.list(&releasev1alpha1.WorkerReleaseList{}) {
		names = append(names, o.GetName())
	}
	return names
}

func TestHistoryKeepsLimitAndServedReleases(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		limit         int32
		during, after int
	}{
		"one":   {"what is served stays until another one is", 1, 2, 1},
		"two":   {"what is served is one of the two", 2, 2, 2},
		"three": {"the newest ones are kept", 3, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(t)
			first := w.releases()[0]
			limited := func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.ReleaseHistoryLimit = tc.limit }
			for i := range 4 { // none of which is built but the last
				prefix := fmt.Sprintf("1234/hello/%d", i+2)
				w.code(prefix, prefix)
				w.deploy("hello", prefix, limited)
				w.reconcileAll()
				wd := &deploymentv1alpha1.WorkerDeployment{}
				w.get("hello", wd)
				if got := w.releases(); !slices.Contains(got, first) || !slices.Contains(got, wd.Status.Release) || len(got) > max(tc.during, 2) {
					t.Fatalf("after %d changes there are %v: %s", i+1, got, tc.reason)
				}
			}
			w.runJob()
			w.reconcileAll()
			if got := w.releases(); len(got) != tc.after || tc.after == 1 && slices.Contains(got, first) {
				t.Errorf("there are %v, not %d: %s", got, tc.after, tc.reason)
			}
		})
	}
}

func TestImageStaysWhileClusterRunsIt(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.ReleaseHistoryLimit = 1 })
	w.reconcileAll()
	w.built("two") // and no cluster has said yet that it runs it
	b := w.bundleOf(team)
	if got := imageDigest(b.Annotations[api.AnnotationLastImage]); got != "sha256:one" {
		t.Errorf("lastImage is %q", got)
	}
	if len(w.registry.deleted) > 0 {
		t.Errorf("the clusters still run what was deleted: %v", w.registry.deleted)
	}
	w.answer()
	w.reconcileAll()
	if diff := cmp.Diff(map[string]bool{"sha256:one": true}, w.registry.deleted); diff != "" {
		t.Errorf("deleted images (-want +got):\n%s", diff)
	}
}

func TestImageStaysWhileItsReleasesExist(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	w.built("two")
	w.answer()
	w.reconcileAll()
	if len(w.registry.deleted) > 0 || w.count("builders") != 2 {
		t.Errorf("%d builds are left, and deleted images are %v", w.count("builders"), w.registry.deleted)
	}
}

func TestImageOfTwoBuildsStaysForTheOther(t *testing.T) {
	w := served(t)
	var builder builderv1alpha1.JobBuilder
	for _, o := range w.list(&builderv1alpha1.JobBuilderList{}) {
		w.get(o.GetName(), &builder)
	}
	twin := builder.DeepCopy()
	twin.Name, twin.UID, twin.ResourceVersion = "twin", "", ""
	w.create(twin)
	twin.Status = builder.Status
	if err := w.client.Status().Update(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	w.remove(twin)
	w.reconcileAll()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(twin), twin); err == nil || len(w.registry.deleted) > 0 {
		t.Errorf("the twin is there: %t, deleted images: %v", err == nil, w.registry.deleted)
	}
}
