// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/api"
	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
	"github.com/spokelet/spokelet/workers/store"
)

// expectCondition returns what the conditions of a WorkerDeployment say.
func (w *world) expectCondition(name string) string {
	w.t.Helper()
	wd := &deploymentv1alpha1.WorkerDeployment{}
	w.get(name, wd)
	var all []string
	for _, kind := range []string{api.ConditionAccepted, api.ConditionBuilt, api.ConditionReady} {
		c := meta.FindStatusCondition(wd.Status.Conditions, kind)
		if c == nil {
			continue
		}
		all = append(all, fmt.Sprintf("%s=%s %s", kind, c.Status, c.Reason))
	}
	return strings.Join(all, ", ")
}

// image is the word in the digest of what the bundle has.
func (w *world) image() string {
	w.t.Helper()
	b := &bundlev1alpha1.WorkerBundle{}
	w.get("bundle", b)
	_, word, _ := strings.Cut(b.Spec.PodTemplate.Image, "@sha256:")
	return word
}

func (w *world) count(kind string) int {
	w.t.Helper()
	if kind == "releases" {
		return len(w.list(&releasev1alpha1.WorkerReleaseList{}))
	}
	return len(w.list(&builderv1alpha1.JobBuilderList{}))
}

const allReady = "Accepted=True Accepted, Built=True Built, Ready=True Served"

// served is a world in which version one of script hello is served.
func served(t *testing.T, objects ...corev1.Secret) *world {
	t.Helper()
	w := newWorld(t)
	for i := range objects {
		w.create(&objects[i])
	}
	w.code("1234/hello/1", "one")
	w.account()
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	w.built("one")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady || w.image() != "one" {
		t.Fatalf("image %q, %s", w.image(), got)
	}
	return w
}

func TestScriptIsServedInAllClusters(t *testing.T) {
	w := served(t)
	b := &bundlev1alpha1.WorkerBundle{}
	w.get("bundle", b)
	if b.Status.ReadyClusters != 2 || b.Status.SelectedClusters != 2 || b.Status.Workers != 1 {
		t.Errorf("got %+v", b.Status)
	}
	if len(w.jobs()) > 0 {
		t.Errorf("there are Jobs still: %v", w.jobs())
	}
}

func TestOnlyContentChangeCreatesRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		change   func(*deploymentv1alpha1.WorkerDeployment)
		code     string
		releases int
	}{
		"code":                     {"other code is another release", nil, "two", 2},
		"the same code elsewhere":  {"where code is stored does not matter", nil, "one", 1},
		"another spelling of date": {"it is the same date", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.CompatibilityDate = "2026-01-15" }, "one", 1},
		"date":                     {"workerd behaves otherwise", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.CompatibilityDate = "2026-01-16" }, "one", 2},
		"environment": {"the script sees it", func(wd *deploymentv1alpha1.WorkerDeployment) {
			wd.Spec.Template.Bindings = []releasev1alpha1.Binding{{Name: "A", Type: releasev1alpha1.BindingPlainText, Text: "b"}}
		}, "one", 2},
		"history": {"it is about releases, not in them", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.ReleaseHistoryLimit = 3 }, "one", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := served(t)
			w.code("1234/hello/2", tc.code)
			w.deploy("hello", "1234/hello/2", tc.change)
			w.reconcileAll()
			if got := w.count("releases"); got != tc.releases {
				t.Errorf("got %d releases, want %d: %s", got, tc.releases, tc.reason)
			}
			if len(w.jobs()) != tc.releases-1 {
				t.Errorf("got %d Jobs: %s", len(w.jobs()), tc.reason)
			}
		})
	}
}

// secret is one that a script names.
func secret(value string) corev1.Secret {
	s := corev1.Secret{ObjectMeta: object("hello-secrets"), Data: map[string][]byte{"TOKEN": []byte(value)}}
	s.Labels = map[string]string{api.LabelScript: "hello"}
	return s
}

// TestScriptCannotReadUnlabelledSecret: who may write WorkerDeployments, and no Secrets, names one.
func TestScriptCannotReadUnlabelledSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		none   bool
		want   string
	}{
		"no label":       {"most Secrets of a namespace are for something else", nil, false, api.ReasonSecretMissing},
		"another script": {"one script does not read another's", map[string]string{api.LabelScript: "other"}, false, api.ReasonSecretMissing},
		"no Secret":      {"which Secrets there are is not told", nil, true, api.ReasonSecretMissing},
		"its script":     {"whoever may write the Secret said so", map[string]string{api.LabelScript: "hello"}, false, api.ReasonAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			database := secret("password")
			database.Name, database.Labels = "database", tc.labels
			if !tc.none {
				w.create(&database)
			}
			w.code("1234/hello/1", "one")
			w.account()
			w.deploy("hello", "1234/hello/1", func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.SecretRef = "database" })
			byHand := &releasev1alpha1.WorkerRelease{ObjectMeta: object("by-hand"), Spec: releasev1alpha1.WorkerReleaseSpec{
				Script: releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", SecretRef: "database", ScriptURLs: []string{"1234/hello/1"}},
			}}
			w.create(byHand)
			w.reconcileAll()
			wd := &deploymentv1alpha1.WorkerDeployment{}
			w.get("hello", wd)
			w.get("by-hand", byHand)
			for what, conditions := range map[string][]metav1.Condition{"deployment": wd.Status.Conditions, "release": byHand.Status.Conditions} {
				c := meta.FindStatusCondition(conditions, api.ConditionAccepted)
				const words = "secretRef: there is no Secret database with the label workers.spokelet.io/script=hello in namespace team-a"
				if c == nil || c.Reason != tc.want || tc.want != api.ReasonAccepted && c.Message != words {
					t.Errorf("%s: the %s says %+v", tc.reason, what, c)
				}
			}
			var secrets corev1.SecretList
			if err := w.client.List(t.Context(), &secrets); err != nil {
				t.Fatal(err)
			}
			if copied := len(secrets.Items) > 1; copied != (tc.want == api.ReasonAccepted) {
				t.Errorf("%s: there are %d Secrets", tc.reason, len(secrets.Items))
			}
			if tc.want == api.ReasonAccepted || tc.none {
				return
			}
			database.Labels = map[string]string{api.LabelScript: "hello"}
			if err := w.client.Update(t.Context(), &database); err != nil {
				t.Fatal(err)
			}
			w.reconcileAll()
			if w.get("hello", wd); !meta.IsStatusConditionTrue(wd.Status.Conditions, api.ConditionAccepted) {
				t.Errorf("%s: with the label it is not accepted", tc.reason)
			}
		})
	}
}

func TestSecretChangeIsServedWithoutBuild(t *testing.T) {
	w := newWorld(t)
	first := secret("first")
	w.create(&first)
	w.code("1234/hello/1", "one")
	w.account()
	named := func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.Template.SecretRef = "hello-secrets" }
	w.deploy("hello", "1234/hello/1", named)
	w.reconcileAll()
	w.built("one")
	w.answer()
	asked := w.store.asked

	changed := &corev1.Secret{}
	w.get("hello-secrets", changed)
	changed.Data["TOKEN"] = []byte("second")
	if err := w.client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	w.reconcileAll()
	b := &bundlev1alpha1.WorkerBundle{}
	w.get("bundle", b)
	copied := &corev1.Secret{}
	w.get(b.Spec.Workers[0].SecretRef, copied)
	if string(copied.Data["TOKEN"]) != "second" || len(w.jobs()) > 0 || w.count("releases") != 2 || w.store.asked != asked {
		t.Errorf("served %q, %d Jobs, %d releases, the store was asked %d times", copied.Data["TOKEN"], len(w.jobs()), w.count("releases"), w.store.asked-asked)
	}
	w.answer()
	if got := w.expectCondition("hello"); got != allReady {
		t.Error(got)
	}
}

func TestRollbackIsServedWithoutBuild(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	w.built("two")
	w.answer()
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	if got := w.image(); got != "one" || len(w.jobs()) > 0 {
		t.Errorf("image %q, %d Jobs", got, len(w.jobs()))
	}
	w.answer()
	if got := w.expectCondition("hello"); got != allReady {
		t.Error(got)
	}
}

func TestRejectedScriptKeepsPreviousRelease(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "broken")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	w.finish(build.Result{Rejected: []builderv1alpha1.Rejection{{ScriptName: "hello", Message: "Unexpected token"}}})
	if got, want := w.expectCondition("hello"), "Accepted=True Accepted, Built=False Rejected, Ready=False PreviousServed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if w.image() != "one" || len(w.jobs()) > 0 {
		t.Errorf("image %q, %d Jobs", w.image(), len(w.jobs()))
	}
	// Another script of the account is not held up by it.
	w.code("1234/other/1", "other")
	w.deploy("other", "1234/other/1", nil)
	w.reconcileAll()
	w.built("both")
	w.answer()
	if got := w.expectCondition("other"); got != allReady {
		t.Error(got)
	}
	b := &bundlev1alpha1.WorkerBundle{}
	w.get("bundle", b)
	var names []string
	for _, worker := range b.Spec.Workers {
		names = append(names, fmt.Sprintf("%s %d", worker.WorkerName, worker.WorkerNumber))
	}
	if diff := cmp.Diff([]string{"hello 8080", "other 8081"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestMissingCodeIsBuiltWhenRestored(t *testing.T) {
	for name, prefix := range map[string]string{"elsewhere": "1234/hello/3", "where it was": "1234/hello/2"} {
		t.Run(name, func(t *testing.T) {
			w := served(t)
			w.code("1234/hello/2", "two")
			w.deploy("hello", "1234/hello/2", nil)
			w.reconcileAll()
			w.finish(build.Result{Rejected: []builderv1alpha1.Rejection{{ScriptName: "hello", Message: "it is gone", Reason: api.ReasonScriptsMissing}}})
			if got, want := w.expectCondition("hello"), "Accepted=True Accepted, Built=False ScriptsMissing, Ready=False PreviousServed"; got != want || w.image() != "one" {
				t.Errorf("got %s and image %s, want %s", got, w.image(), want)
			}
			w.code(prefix, "two")
			w.deploy("hello", prefix, nil)
			w.reconcileAll()
			w.built("two")
			w.answer()
			if got := w.expectCondition("hello"); got != allReady || w.image() != "two" {
				t.Errorf("got %s and image %s", got, w.image())
			}
		})
	}
}

func TestRestartChangesNothing(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	restart := func(when string) {
		before := w.dump()
		w.restart()
		w.reconcileAll()
		if diff := cmp.Diff(before, w.dump()); diff != "" {
			t.Errorf("a restart %s changed objects: %s", when, diff)
		}
	}
	restart("during a build")
	w.built("two")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady {
		t.Error(got)
	}
	restart("when all is served")
}

func TestOldReleasesAndImagesAreRemoved(t *testing.T) {
	w := served(t)
	limited := func(wd *deploymentv1alpha1.WorkerDeployment) { wd.Spec.ReleaseHistoryLimit = 2 }
	for i, word := range []string{"two", "three", "four"} {
		prefix := fmt.Sprintf("1234/hello/%d", i+2)
		w.code(prefix, word)
		w.deploy("hello", prefix, limited)
		w.reconcileAll()
		w.built(word)
		w.answer()
	}
	w.reconcileAll()
	if got := w.count("releases"); got != 2 {
		t.Errorf("got %d releases, want 2", got)
	}
	want := map[string]bool{"sha256:one": true, "sha256:two": true}
	if diff := cmp.Diff(want, w.registry.deleted); diff != "" {
		t.Errorf("deleted images (-want +got):\n%s", diff)
	}
}

func TestUnavailableStoreIsReportedAndRetried(t *testing.T) {
	w := served(t)
	w.code("1234/hello/2", "two")
	w.store.err = fmt.Errorf("connect: %w", store.ErrUnavailable)
	w.deploy("hello", "1234/hello/2", nil)
	w.reconcileAll()
	if got, want := w.expectCondition("hello"), "Accepted=False StoreUnavailable, Built=True Built, Ready=False PreviousServed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w.store.err = nil
	w.reconcileAll()
	w.built("two")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady {
		t.Error(got)
	}
}

func TestFailedBuildIsRetriedByNewJob(t *testing.T) {
	w := newWorld(t)
	w.code("1234/hello/1", "one")
	w.account()
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	first := w.jobs()[0].Name
	w.finish(build.Result{Failure: &build.Failure{Message: "the registry is full", Retry: true}})
	if got, want := w.expectCondition("hello"), "Accepted=True Accepted, Built=Unknown Retrying, Ready=False Waiting"; got != want || len(w.jobs()) > 0 {
		t.Errorf("got %s and %d Jobs, want %s", got, len(w.jobs()), want)
	}
	w.now = w.now.Add(retryDelay(1))
	w.reconcileAll()
	if second := w.jobs()[0].Name; second == first {
		t.Errorf("Job %s is there again", first)
	}
	w.built("one")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady {
		t.Error(got)
	}
}

func TestChangesDuringBuildAreBuiltTogether(t *testing.T) {
	w := newWorld(t)
	w.account()
	for _, version := range []string{"1", "2", "3"} {
		w.code("1234/hello/"+version, version)
		w.deploy("hello", "1234/hello/"+version, nil)
		w.reconcileAll()
		if got := len(w.jobs()); got != 1 {
			t.Fatalf("there are %d Jobs, want 1", got)
		}
	}
	w.built("one") // what was asked for first
	if w.image() == "one" {
		t.Error("what nobody asks for any more is served")
	}
	w.built("three")
	w.answer()
	if got := w.expectCondition("hello"); got != allReady || w.image() != "three" || w.count("builders") != 2 {
		t.Errorf("%s, image %s, %d builds", got, w.image(), w.count("builders"))
	}
}
