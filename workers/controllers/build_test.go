// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/api"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
)

// building is a world with one build, whose Job runs.
func building(t *testing.T) (*world, reconcile.Request) {
	t.Helper()
	w := newWorld(t)
	w.code("1234/hello/1", "one")
	w.account()
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	builders := w.list(&builderv1alpha1.JobBuilderList{})
	if len(builders) != 1 || len(w.jobs()) != 1 {
		t.Fatalf("there are %d builds and %d Jobs", len(builders), len(w.jobs()))
	}
	return w, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(builders[0])}
}

func TestRunningJobIsNotCreatedAgain(t *testing.T) {
	w, request := building(t)
	if result, err := w.buildController.Reconcile(t.Context(), request); err != nil || result != (reconcile.Result{}) {
		t.Errorf("the next look is at %+v, %v: the Job's end is an event", result, err)
	}
	w.finish(build.Result{Failure: &build.Failure{Message: "the registry is full", Retry: true}})
	w.now = w.now.Add(500 * time.Millisecond)
	if result, err := w.buildController.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != retryDelay(1)-500*time.Millisecond {
		t.Errorf("the next attempt is in %s, %v", result.RequeueAfter, err)
	}
}

func TestBuildStepsMountOnlyTheirSecrets(t *testing.T) {
	w, _ := building(t)
	settings := &w.b.Settings
	settings.Store.Secret, settings.Registry.Secret, settings.Store.CASecret, settings.Registry.CASecret = "store", "registry", "store-ca", "registry-ca"
	pod := w.b.podSpec("input")
	secrets := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			secrets[v.Name] = v.Secret.SecretName
		}
	}
	got := map[string][]string{}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		got[c.Name] = []string{}
		for _, m := range c.VolumeMounts {
			if secret := secrets[m.Name]; secret != "" {
				got[c.Name] = append(got[c.Name], secret)
			}
		}
	}
	want := map[string][]string{"fetch": {"store", "store-ca"}, "check": {}, "push": {"registry", "registry-ca"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Secrets of the steps (-want +got):\n%s", diff)
	}
	if *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token")
	}
}

func TestBuildJobHasUniqueNameInOperatorNamespace(t *testing.T) {
	w, _ := building(t)
	job := w.jobs()[0]
	if job.Namespace != operator || job.Labels[api.LabelNamespace] != team || job.Labels[api.LabelAccount] != "1234" {
		t.Errorf("Job %s/%s has labels %v", job.Namespace, job.Name, job.Labels)
	}
	w.built("one")
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	if second := w.jobs()[0].Name; second == job.Name {
		t.Errorf("Job %s is that of another build, too", second)
	}
}

func TestBuildReportsMissingRelease(t *testing.T) {
	w := newWorld(t)
	b := &builderv1alpha1.JobBuilder{ObjectMeta: object("by-hand")}
	b.Spec = builderv1alpha1.JobBuilderSpec{WorkerBundleName: "bundle", ScriptNames: []string{"hello"}, Releases: []string{"nowhere"}}
	w.create(b)
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: team, Name: "by-hand"}}
	if result, err := w.buildController.Reconcile(t.Context(), request); err != nil || result != (reconcile.Result{}) {
		t.Errorf("%+v, %v: a release that comes is an event", result, err)
	}
	w.get("by-hand", b)
	if v := builtConditionOf(b); v.reason != api.ReasonWaiting || !strings.Contains(v.message, "nowhere") || len(w.jobs()) > 0 {
		t.Errorf("it says %+v, and there are %d Jobs", v, len(w.jobs()))
	}
}

func TestBuildResultIsReadBeforeJobEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		code    int32
		message string
		want    string
	}{
		"an image":    {"a Job counts its pods two seconds later", 0, `{"image":"registry/workers/1234@sha256:one"}`, api.ReasonBuilt},
		"a rejection": {"the author waits for it", 1, `{"rejected":[{"scriptName":"hello","message":"no"}]}`, api.ReasonRejected},
		"nothing":     {"without a result the Job has the last word", 0, "", api.ReasonBuilding},
	} {
		t.Run(name, func(t *testing.T) {
			w, request := building(t)
			w.create(podOf(&w.jobs()[0], tc.code, tc.message))
			w.reconcileAll()
			b := &builderv1alpha1.JobBuilder{}
			w.get(request.Name, b)
			if got := builtConditionOf(b); got.reason != tc.want {
				t.Errorf("%s: it says %+v, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestImageIsReadOnlyFromPushStep(t *testing.T) {
	const image = `{"image":"registry/workers/1234@sha256:another"}`
	for name, tc := range map[string]struct {
		reason string
		step   string
		code   int32
		stray  bool
		want   string
	}{
		"fetch":              {"it reads what an account stored", stepFetch, 0, false, api.ReasonBuilding},
		"check":              {"it runs a stranger's code", stepCheck, 0, false, api.ReasonBuilding},
		"check, which fails": {"a step that fails has an end, and no image", stepCheck, 1, false, api.ReasonRetrying},
		"another pod":        {"a label says nothing of whose it is", stepPush, 0, true, api.ReasonBuilding},
		"push":               {"it wrote the image", stepPush, 0, false, api.ReasonBuilt},
	} {
		t.Run(name, func(t *testing.T) {
			w, request := building(t)
			pod := podOf(&w.jobs()[0], tc.code, image)
			pod.Status.ContainerStatuses[0].Name = tc.step
			if tc.step != stepPush {
				pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = pod.Status.ContainerStatuses, nil
			}
			if tc.stray {
				pod.OwnerReferences = nil
			}
			w.create(pod)
			w.reconcileAll()
			b := &builderv1alpha1.JobBuilder{}
			w.get(request.Name, b)
			if got := builtConditionOf(b); got.reason != tc.want {
				t.Errorf("%s: it says %+v, want %s", tc.reason, got, tc.want)
			}
			if tc.want != api.ReasonBuilt && b.Status.Image != "" {
				t.Errorf("%s: the image is %s", tc.reason, b.Status.Image)
			}
		})
	}
}
