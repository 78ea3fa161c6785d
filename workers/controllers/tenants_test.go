// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// namespaceOf is one that an administrator gave an account.
func namespaceOf(name, account string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(1e9, 0)}}
	if account != "" {
		ns.Labels = map[string]string{api.LabelAccount: account}
	}
	return ns
}

// tenant asks, in a namespace, for script hello of an account on a host.
func (w *world) tenant(namespace, account, host string) {
	w.t.Helper()
	prefix := account + "/hello/1"
	w.code(prefix, "code of "+account)
	w.create(&accountv1alpha1.WorkerAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}, Spec: accountv1alpha1.WorkerAccountSpec{WorkerBundleName: "bundle", Host: host},
	})
	wd := &deploymentv1alpha1.WorkerDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hello", Generation: 1}}
	wd.Spec.Template = releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", ScriptURLs: []string{prefix}}
	w.create(wd)
}

// expectMessage is what a WorkerDeployment of a namespace is told about its acceptance.
func (w *world) expectMessage(namespace string) string {
	w.t.Helper()
	wd := &deploymentv1alpha1.WorkerDeployment{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: "hello"}, wd); err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(wd.Status.Conditions, api.ConditionAccepted)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// bundleOf is the WorkerBundle of a namespace.
func (w *world) bundleOf(namespace string) *bundlev1alpha1.WorkerBundle {
	w.t.Helper()
	b := &bundlev1alpha1.WorkerBundle{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: "bundle"}, b); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// placed are the works: which namespace has which in each cluster.
func (w *world) placed() map[string]string {
	w.t.Helper()
	placed := map[string]string{}
	for _, o := range w.list(&workv1.ManifestWorkList{}) {
		placed[o.GetNamespace()+"/"+o.GetName()] = o.GetLabels()[api.LabelNamespace]
	}
	return placed
}

func everywhere(work, namespace string) map[string]string {
	return map[string]string{"spoke1/" + work: namespace, "spoke2/" + work: namespace}
}

func TestOlderNamespaceOwnsAccount(t *testing.T) {
	w := newWorld(t, namespaceOf("team-b", "1234")) // team-a is older
	w.tenant("team-b", "1234", "")
	w.reconcileAll()
	if asked := w.store.asked; asked > 0 {
		t.Errorf("the store was asked %d times for a namespace that has no account", asked)
	}
	if got := w.expectMessage("team-b"); !strings.HasPrefix(got, api.ReasonAccountTaken) || !strings.Contains(got, team) {
		t.Errorf("the younger namespace is told %q, and not of %s", got, team)
	}
	account := &accountv1alpha1.WorkerAccount{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "team-b", Name: "1234"}, account); err != nil {
		t.Fatal(err)
	}
	if !hasReason(account.Status.Conditions, api.ConditionAccepted, api.ReasonAccountTaken) {
		t.Errorf("its WorkerAccount is told %+v", account.Status.Conditions)
	}

	w.tenant(team, "1234", "")
	w.reconcileAll()
	w.runJob()
	if diff := cmp.Diff(everywhere("workers-1234", team), w.placed()); diff != "" {
		t.Errorf("the older namespace is not served alone (-want +got):\n%s", diff)
	}

	w.label(team, "")
	w.reconcileAll()
	w.runJob()
	if diff := cmp.Diff(everywhere("workers-1234", "team-b"), w.placed()); diff != "" {
		t.Errorf("the younger one does not take over (-want +got):\n%s", diff)
	}
	if got := w.expectMessage("team-b"); !strings.HasPrefix(got, api.ReasonAccepted) {
		t.Errorf("it is told %q", got)
	}
	if got := w.expectMessage(team); !strings.HasPrefix(got, api.ReasonNoAccount) {
		t.Errorf("the older one is told %q", got)
	}
}

// label gives a namespace an account, or takes it away.
func (w *world) label(namespace, account string) {
	w.t.Helper()
	ns := &corev1.Namespace{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Name: namespace}, ns); err != nil {
		w.t.Fatal(err)
	}
	ns.Labels = namespaceOf(namespace, account).Labels
	if err := w.client.Update(w.t.Context(), ns); err != nil {
		w.t.Fatal(err)
	}
}

func TestOlderNamespaceTakesAccountFromYounger(t *testing.T) {
	older := namespaceOf("old-team", "")
	older.CreationTimestamp = metav1.Unix(1, 0)
	w := newWorld(t, older, namespaceOf("team-b", "5678"))
	w.tenant("team-b", "5678", "")
	w.reconcileAll()
	w.runJob()
	w.holdWorks(true)
	w.label("old-team", "5678")
	w.tenant("old-team", "5678", "")
	w.reconcileAll()
	for _, job := range w.jobs() {
		w.end(&job, imageOf(&job))
	}
	for _, c := range w.bundleOf("old-team").Status.Clusters {
		if c.Ready || !strings.HasPrefix(c.Message, "another WorkerBundle") {
			t.Errorf("while the clusters still have the works of team-b %+v is said", c)
		}
	}
	w.holdWorks(false)
	w.reconcileAll()
	w.answer()
	if diff := cmp.Diff(everywhere("workers-5678", "old-team"), w.placed()); diff != "" {
		t.Errorf("the older one does not take over (-want +got):\n%s", diff)
	}
}

// holdWorks has the agents of clusters hold works that are being deleted, or let them go.
func (w *world) holdWorks(hold bool) {
	w.t.Helper()
	for _, o := range w.list(&workv1.ManifestWorkList{}) {
		finalizers := []string(nil)
		if hold {
			finalizers = []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}
		}
		o.SetFinalizers(finalizers)
		if err := w.client.Update(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestNamespaceWithNewAccountRemovesOldObjects(t *testing.T) {
	w := newWorld(t)
	w.tenant(team, "1234", "")
	w.reconcileAll()
	w.runJob()
	former := imageDigest(w.bundleOf(team).Spec.PodTemplate.Image)
	w.label(team, "5678")
	w.reconcileAll()
	w.reconcileAll()
	w.runJob()
	if diff := cmp.Diff(map[string]string{}, w.placed()); diff != "" {
		t.Errorf("scripts that are stored for account 1234 are served (-want +got):\n%s", diff)
	}
	if got := w.expectMessage(team); strings.HasPrefix(got, api.ReasonAccepted) {
		t.Errorf("code of account 1234 is accepted for account 5678: %s", got)
	}
	if !w.registry.deleted[former] {
		t.Errorf("image %s of the former account is still there: deleted are %v", former, w.registry.deleted)
	}
}

func TestNamespaceWithoutAccountReportsNoAccount(t *testing.T) {
	for name, tc := range map[string]struct{ reason, account, want string }{
		"no label":         {"an administrator sets it, and it is named", "", "NoAccount: the namespace has no account: an administrator sets its label workers.spokelet.io/account"},
		"no id of account": {"what is wrong is named", "No!", `NoAccount: label workers.spokelet.io/account: account "No!" is not 1 to 40 lower-case letters, digits and inner hyphens`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, namespaceOf("team-b", tc.account))
			w.tenant("team-b", "5678", "")
			w.reconcileAll()
			if got := w.expectMessage("team-b"); got != tc.want || w.store.asked > 0 {
				t.Errorf("it is told %q, not %q, and the store was asked %d times: %s", got, tc.want, w.store.asked, tc.reason)
			}
			if placed := w.placed(); len(placed) > 0 {
				t.Errorf("there are works: %v", placed)
			}
		})
	}
}

func TestScriptWithoutWorkerAccountReportsNoAccount(t *testing.T) {
	w := newWorld(t)
	w.code("1234/hello/1", "one")
	w.deploy("hello", "1234/hello/1", nil)
	w.reconcileAll()
	if got, want := w.expectCondition("hello"), "Accepted=True Accepted, Built=False NoAccount, Ready=False Waiting"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSecondWorkerAccountReportsAccountTaken(t *testing.T) {
	w := served(t)
	w.create(&accountv1alpha1.WorkerAccount{ObjectMeta: object("second"), Spec: accountv1alpha1.WorkerAccountSpec{WorkerBundleName: "other"}})
	w.reconcileAll()
	second := &accountv1alpha1.WorkerAccount{}
	w.get("second", second)
	c := meta.FindStatusCondition(second.Status.Conditions, api.ConditionAccepted)
	if c == nil || c.Reason != api.ReasonAccountTaken || !strings.Contains(c.Message, "WorkerAccount 1234") {
		t.Errorf("it is told %+v", c)
	}
	if got := len(w.list(&bundlev1alpha1.WorkerBundleList{})); got != 1 {
		t.Errorf("there are %d bundles", got)
	}
}
