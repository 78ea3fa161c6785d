// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
)

// imageOf is what a Job has built, named by its build.
func imageOf(job *batchv1.Job) build.Result {
	return build.Result{Image: "registry/workers/" + job.Labels[api.LabelAccount] + "@sha256:" + job.Labels[api.LabelBuilder]}
}

func TestReconcileOrderDoesNotChangeResult(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := newWorld(t)
			w.order = rand.New(rand.NewPCG(seed, 0))
			value := secret("value")
			steps := []func(){
				w.account,
				func() { w.create(&value) },
				func() {
					w.deploy("hello", "1234/hello/1", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.SecretRef = value.Name })
				},
				func() { w.deploy("other", "1234/other/1", nil) },
				func() { w.code("1234/hello/1", "one") },
				func() { w.code("1234/other/1", "other") },
			}
			w.order.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
			for _, step := range steps {
				step()
				for range w.order.IntN(3) {
					w.round()
				}
				if jobs := w.jobs(); len(jobs) > 0 && w.order.IntN(2) == 0 {
					w.end(&jobs[0], imageOf(&jobs[0]))
				}
			}
			w.reconcileAll()
			w.runJob()
			if hello, other := w.expectCondition("hello"), w.expectCondition("other"); hello != allReady || other != allReady {
				t.Errorf("hello: %s\nother: %s", hello, other)
			}
			if got := w.workers(); !slices.Equal(got, []string{"hello 8080", "other 8081"}) {
				t.Errorf("what is served is %v", got)
			}
		})
	}
}

func TestLaterOfTwoChangesIsServed(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := served(t)
			w.order = rand.New(rand.NewPCG(seed, 1))
			for _, version := range []string{"2", "3"} {
				w.code("1234/hello/"+version, "version "+version)
				w.deploy("hello", "1234/hello/"+version, nil)
				for range w.order.IntN(3) {
					w.round()
				}
			}
			w.reconcileAll()
			w.runJob()
			r := &releasev1alpha1.WorkerRelease{}
			w.get(w.bundleOf(team).Spec.Workers[0].Release, r)
			if got := r.Spec.Modules[0].ETag; got != "version 3" || w.expectCondition("hello") != allReady {
				t.Errorf("%s is served: %s", got, w.expectCondition("hello"))
			}
			// What was built before says nothing any more, whoever looks at it again.
			w.restart()
			w.reconcileAll()
			if got := w.bundleOf(team).Spec.Workers[0].Release; got != r.Name {
				t.Errorf("after a restart %s is served, not %s", got, r.Name)
			}
		})
	}
}

func TestNewerBuildReplacesWaitingBuild(t *testing.T) {
	w := newWorld(t)
	w.account()
	w.code("1234/hello/1", "one")
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	w.finish(build.Result{Failure: &build.Failure{Message: "the registry is full", Retry: true}})
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll() // while the first one waits for its next attempt
	w.built("two")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady || w.image() != "two" || w.count("builders") != 1 {
		t.Errorf("%s, image %s, %d builds", got, w.image(), w.count("builders"))
	}
}

func TestDeletedImageIsRebuilt(t *testing.T) {
	w := served(t)
	w.registry.missing["sha256:one"] = true
	w.create(cluster("spoke3")) // which cannot read it
	w.reconcileAll()
	if got := len(w.jobs()); got != 1 {
		t.Fatalf("there are %d Jobs", got)
	}
	w.registry.missing = map[string]bool{}
	w.built("one") // the same bytes
	w.answer()
	if got := w.expectCondition("hello"); got != allReady || w.image() != "one" || w.count("builders") != 1 {
		t.Errorf("%s, image %s, %d builds", got, w.image(), w.count("builders"))
	}
}

func TestMissingImageIsRebuiltAfterRunningBuild(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	w.registry.missing["sha256:one"] = true
	w.create(cluster("spoke3"))
	w.reconcileAll() // which fails if there are two Jobs
	w.built("two")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady || w.image() != "two" {
		t.Errorf("%s, image %s", got, w.image())
	}
}

func TestUnreachableClusterDoesNotBlockOthers(t *testing.T) {
	w := served(t)
	// Somebody has a work of that name there.
	stray := &workv1.ManifestWork{}
	stray.Namespace, stray.Name = "spoke0", "workers-1234"
	w.create(stray)
	w.create(cluster("spoke0"))
	w.create(cluster("spoke3"))
	w.reconcileAll()
	ready := map[string]bool{}
	w.remove(stray)
	for _, c := range w.bundleOf(team).Status.Clusters {
		if c.Name == "spoke0" && !strings.Contains(c.Message, "workers-1234") {
			t.Errorf("of spoke0 it says %q", c.Message)
		}
	}
	w.reconcileAll()
	w.answer()
	for _, c := range w.bundleOf(team).Status.Clusters {
		ready[c.Name] = c.Ready
	}
	if diff := cmp.Diff(map[string]bool{"spoke0": true, "spoke1": true, "spoke2": true, "spoke3": true}, ready); diff != "" {
		t.Errorf("clusters that serve it (-want +got):\n%s", diff)
	}
}

func TestUnofferedClusterLosesWork(t *testing.T) {
	w := served(t)
	c := &clusterv1.ManagedCluster{}
	for _, o := range w.list(&clusterv1.ManagedClusterList{}) {
		if o.GetName() == "spoke2" {
			c, _ = o.(*clusterv1.ManagedCluster)
		}
	}
	c.Labels[api.LabelClusters] = "false"
	if err := w.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.reconcileAll()
	if diff := cmp.Diff(map[string]string{"spoke1/workers-1234": team}, w.placed()); diff != "" {
		t.Errorf("works (-want +got):\n%s", diff)
	}
}

func TestAccountSelectsByWorkerDeploymentLabels(t *testing.T) {
	w := served(t)
	account := w.bundleOf(team)
	if got := len(account.Spec.Workers); got != 1 {
		t.Fatalf("%d scripts are served", got)
	}
	labelled := func(tier string) {
		w.deploy("hello", "1234/hello/1", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Labels = map[string]string{"tier": tier} })
		w.reconcileAll()
	}
	w.selecting("tier", "gold")
	labelled("silver")
	if got := w.workers(); len(got) > 0 {
		t.Errorf("what is not selected is served: %v", got)
	}
	labelled("gold")
	if got := w.workers(); !slices.Equal(got, []string{"hello 8080"}) || len(w.jobs()) > 0 {
		t.Errorf("what is served is %v, and there are %d Jobs", got, len(w.jobs()))
	}
}

func TestInstallReportsExistingRelease(t *testing.T) {
	w := served(t)
	name := w.releases()[0]
	w.remove(&deploymentv1alpha1.WorkerDeployment{ObjectMeta: object("hello")})
	w.reconcileAll()
	stranger := &releasev1alpha1.WorkerRelease{ObjectMeta: object(name)}
	stranger.Spec.Script = releasev1alpha1.Script{ScriptName: "stranger", CompatibilityDate: "2026-01-15", ScriptURLs: []string{"1234/hello/1"}}
	w.create(stranger)
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	if got := w.expectMessage(team); !strings.HasPrefix(got, api.ReasonNameTaken) || !strings.Contains(got, name) {
		t.Errorf("it is told %q", got)
	}
}
