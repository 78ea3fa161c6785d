// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	releasecommon "helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/agent/helm/message"
)

func TestInstallAndUninstall(t *testing.T) {
	r := newRig(t)
	r.charts["values.yaml"] = []byte("color: green\nsize: large\n")
	made := r.done(t, message.Install, func(q *message.Request) {
		q.Values, q.ValuesURL, q.Manifest = []byte("color: white"), r.url+"/values.yaml", true
	})
	want := &message.Release{Name: "web", Namespace: r.namespace, Revision: 1, Status: "deployed", Description: "Install complete", ChartName: "web", ChartVersion: "1.0.0"}
	if diff := cmp.Diff(want, made, cmpopts.IgnoreFields(message.Release{}, "Manifest", "FirstDeployed", "LastDeployed")); diff != "" {
		t.Errorf("release (-want +got):\n%s", diff)
	}
	if !strings.Contains(made.Manifest, "white") || made.FirstDeployed.IsZero() {
		t.Errorf("manifest %q, deployed %s", made.Manifest, made.FirstDeployed)
	}
	if diff := cmp.Diff(map[string]string{"color": "white", "size": "large"}, r.data(t, "web")); diff != "" {
		t.Errorf("the values of the request win over those of the file (-want +got):\n%s", diff)
	}
	if text := strings.Join(r.progress, "\n"); !strings.Contains(text, "reading chart "+r.url) || !strings.Contains(text, "creating ConfigMap web") {
		t.Errorf("progress %q", text)
	}

	if manager := r.manager(t, "web"); manager != "helm" {
		t.Errorf("the field manager is %q, want that of the helm command, which could not change it otherwise", manager)
	}

	second := func(q *message.Request) { q.Chart.URL, q.ActionLabel = r.url+"/web-2.0.0.tgz", "uid.2" }
	changed := r.done(t, message.Upgrade, second)
	if changed.Revision != 2 || changed.ChartVersion != "2.0.0" || changed.Manifest != message.Masked {
		t.Errorf("got %+v", changed)
	}
	if diff := cmp.Diff(map[string]string{"color": "white", "size": "large"}, r.data(t, "web")); diff != "" {
		t.Errorf("no values are those of before (-want +got):\n%s", diff)
	}
	r.done(t, message.Upgrade, func(q *message.Request) { second(q); q.Values = []byte("size: tiny") })
	if diff := cmp.Diff(map[string]string{"color": "blue", "size": "tiny"}, r.data(t, "web")); diff != "" {
		t.Errorf("values take the place of those of before (-want +got):\n%s", diff)
	}

	gone := r.done(t, message.Uninstall, nil)
	if !gone.Removed || gone.Revision != 3 || gone.Status != "uninstalled" {
		t.Errorf("got %+v", gone)
	}
	if left := r.records(t); r.data(t, "web") != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", r.data(t, "web"), left)
	}
}

func TestInstallCreatesMissingNamespace(t *testing.T) {
	r := newRig(t)
	r.namespace += "-new"
	t.Cleanup(func() {
		_ = r.kube.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), r.namespace, metav1.DeleteOptions{})
	})
	r.done(t, message.Install, nil)
	if r.data(t, "web") == nil {
		t.Error("there is no object")
	}
}

func TestInstallReportsExistingRelease(t *testing.T) {
	r := newRig(t)
	r.done(t, message.Install, nil)
	for status, texts := range map[releasecommon.Status][]string{
		releasecommon.StatusDeployed:       {"release web in namespace " + r.namespace + " exists", "update it (actionType Update)"},
		releasecommon.StatusFailed:         {"is failed", "update it (actionType Update), or delete it"},
		releasecommon.StatusPendingInstall: {"is pending-install", "delete it (actionType Delete)"},
		releasecommon.StatusUninstalling:   {"is uninstalling", "delete it (actionType Delete)"},
		releasecommon.StatusUninstalled:    {"its history is kept: delete it"},
	} {
		r.setStatus(t, 1, status)
		failed(t, r.run(t, message.Install, nil), message.Refused, append(texts, "nothing was done")...)
		if status == releasecommon.StatusDeployed || status == releasecommon.StatusFailed {
			continue
		}
		failed(t, r.run(t, message.Upgrade, nil), message.Refused, texts...)
	}
	r.setStatus(t, 1, releasecommon.StatusFailed)
	if got := r.done(t, message.Upgrade, nil); got.Revision != 2 || got.Status != "deployed" {
		t.Errorf("a failed release became %+v", got)
	}
	r.setStatus(t, 2, releasecommon.StatusPendingUpgrade)
	failed(t, r.run(t, message.Upgrade, nil), message.Refused, "is pending-upgrade at revision 2", "roll it back (helm rollback)")
	r.done(t, message.Uninstall, nil)
	if left := r.records(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestUpgradeReportsMissingRelease(t *testing.T) {
	r := newRig(t)
	r.done(t, message.Install, func(q *message.Request) { q.Name = r.namespace })
	of := func(namespace string) func(*message.Request) {
		return func(q *message.Request) { q.Name, q.Namespace = r.namespace, namespace }
	}
	for _, verb := range []message.Verb{message.Upgrade, message.Uninstall} {
		failed(t, r.run(t, verb, of("default")), message.Refused, "not found", "there is one in namespace "+r.namespace)
		failed(t, r.run(t, verb, nil), message.Refused, "release web in namespace "+r.namespace, "not found")
	}
	if got := r.done(t, message.Uninstall, of("")); got.Namespace != r.namespace {
		t.Errorf("without a namespace it is the only one of its name: got %+v", got)
	}
}

func TestInvalidChartChangesNothing(t *testing.T) {
	r := newRig(t)
	r.charts["fails.tgz"] = packChart(t, "fails", "1.0.0", files{"templates/a.yaml": `{{ fail "no such size" }}`})
	r.charts["broken.tgz"] = packChart(t, "broken", "1.0.0", files{"templates/a.yaml": "kind: [ConfigMap\n"})
	r.charts["strange.tgz"] = packChart(t, "strange", "1.0.0", files{"templates/a.yaml": "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: a}\n"})
	r.charts["strict.tgz"] = packChart(t, "strict", "1.0.0", files{"templates/a.yaml": configMap, "values.schema.json": `{"properties":{"color":{"type":"integer"}}}`})
	r.charts["taken.tgz"] = packChart(t, "taken", "1.0.0", files{"templates/a.yaml": strings.ReplaceAll(configMap, "{{ .Release.Name }}", "taken")})
	r.charts["kube.tgz"] = packChart(t, "kube", "1.0.0\nkubeVersion: '>=9.0.0'", files{"templates/a.yaml": configMap})
	taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}
	if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), taken, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*message.Request)
		cause  message.Cause
		text   string
	}{
		"fails":              {reason: "its author says why", text: "no such size"},
		"broken":             {reason: "it makes no YAML", text: "templates/a.yaml"},
		"strange":            {reason: "the cluster does not know the kind", cause: message.Invalid, text: "Strange a (example.com/v1: no version of the kind is served)"},
		"strict":             {reason: "the chart says what its values are", change: func(q *message.Request) { q.Values = []byte("color: red") }, text: "color"},
		"taken":              {reason: "it is somebody else's", text: "taken"},
		"kube":               {reason: "the cluster is too old", text: "9.0.0"},
		"gone":               {reason: "there is none", text: "404"},
		"a name of no chart": {reason: "it says which field", change: func(q *message.Request) { q.Chart.URL = "" }, cause: message.Invalid, text: "helm.chartURL"},
		"no name":            {reason: "a release has one", change: func(q *message.Request) { q.Name = "A b" }, cause: message.Invalid, text: "name"},
		"values that are none": {reason: "what they are is not said", cause: message.Invalid, text: "no YAML",
			change: func(q *message.Request) { q.Chart.URL, q.Values = r.url+"/web-1.0.0.tgz", []byte("secret: a: b: [") }},
		"not allowed": {reason: "the owner says so", text: "helm.charts", change: func(q *message.Request) { q.Allowed = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			answer := r.run(t, message.Install, func(q *message.Request) {
				q.Chart.URL = fmt.Sprintf("%s/%s.tgz", r.url, strings.ReplaceAll(name, " ", ""))
				if tc.change != nil {
					tc.change(q)
				}
			})
			if tc.cause == "" {
				tc.cause = message.Refused
			}
			failed(t, answer, tc.cause, tc.text)
			if left := r.records(t); len(left) > 0 || r.data(t, "web") != nil {
				t.Errorf("left: %v: %s", left, tc.reason)
			}
			if strings.Contains(answer.Failure.Message, "secret") {
				t.Errorf("got %q: %s", answer.Failure.Message, tc.reason)
			}
		})
	}
}

// TestInstallReportsVersionsNotServed, also where its record has them, from
// before the cluster was upgraded.
func TestInstallReportsVersionsNotServed(t *testing.T) {
	r := newRig(t)
	r.charts["old.tgz"] = packChart(t, "old", "1.0.0", files{"templates/a.yaml": configMap, "templates/b.yaml": oldVersions})
	old := func(q *message.Request) { q.Chart.URL = r.url + "/old.tgz" }
	texts := []string{"Deployment web (extensions/v1beta1: use apps/v1)", "Ingress web (extensions/v1beta1: use networking.k8s.io/v1)"}
	failed(t, r.run(t, message.Install, old), message.Invalid, texts...)
	if left := r.records(t); len(left) > 0 || r.data(t, "web") != nil {
		t.Errorf("left: %v", left)
	}
	r.done(t, message.Install, nil)
	failed(t, r.run(t, message.Upgrade, old), message.Invalid, texts...)
	if diff := cmp.Diff(map[string]string{"sh.helm.release.v1.web.v1": "deployed"}, r.records(t)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	r.record(t, 1, func(revision *releasev1.Release) { revision.Manifest += "---\n" + oldVersions })
	for _, verb := range []message.Verb{message.Upgrade, message.Uninstall} {
		failed(t, r.run(t, verb, nil), message.Invalid, texts...)
	}
	if r.data(t, "web") == nil {
		t.Error("a removal that cannot be done is done in part")
	}
	// What Helm's plugin mapkubeapis does: the record names versions that are served.
	r.record(t, 1, func(revision *releasev1.Release) {
		revision.Manifest = strings.NewReplacer("extensions/v1beta1\nkind: D", "apps/v1\nkind: D", "extensions/v1beta1\nkind: I", "networking.k8s.io/v1\nkind: I").Replace(revision.Manifest)
	})
	r.done(t, message.Uninstall, nil)
	if left := r.records(t); len(left) > 0 || r.data(t, "web") != nil {
		t.Errorf("left: %v", left)
	}
}

func TestReleaseHasRightsOfRequester(t *testing.T) {
	r := newRig(t)
	records := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}}
	maps := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs}
	}
	nobody, reader := r.user(t, "nobody"), r.user(t, "reader", records, maps("get"))
	failed(t, r.runAs(t, nobody, message.Install, nil), message.Refused, "secrets is forbidden", `User "nobody-`)
	answer := r.runAs(t, reader, message.Install, nil)
	failed(t, answer, message.Refused, `configmaps "web" is forbidden`)
	if answer.Failure.Reason != string(metav1.StatusReasonForbidden) {
		t.Errorf("reason %q", answer.Failure.Reason)
	}
	if diff := cmp.Diff(map[string]string{"sh.helm.release.v1.web.v1": "failed"}, r.records(t)); diff != "" {
		t.Errorf("what failed is recorded (-want +got):\n%s", diff)
	}
	writer := r.user(t, "writer", records, maps("get", "create", "patch"))
	if answer := r.runAs(t, writer, message.Upgrade, nil); answer.Failure != nil {
		t.Fatalf("got %+v", answer.Failure)
	}
	answer = r.runAs(t, writer, message.Uninstall, nil)
	failed(t, answer, message.Refused, `configmaps "web" is forbidden`)
	if answer.Failure.Reason != string(metav1.StatusReasonForbidden) {
		t.Errorf("reason %q: Helm does not say why it could not delete", answer.Failure.Reason)
	}
	if got := r.done(t, message.Uninstall, nil); !got.Removed || r.data(t, "web") != nil {
		t.Errorf("what was begun does not go on: %+v", got)
	}
}

func TestInstallWaitsForDefinitions(t *testing.T) {
	r := newRig(t)
	group := r.namespace + ".example.com"
	definition := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%s}
spec:
  group: %[1]s
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, group)
	thing := fmt.Sprintf("{{ if .Capabilities.APIVersions.Has \"%s/v1/Thing\" }}\napiVersion: %[1]s/v1\nkind: Thing\nmetadata: {name: a}\n{{ end }}\n", group)
	r.charts["things.tgz"] = packChart(t, "things", "1.0.0", files{"crds/a.yaml": definition, "templates/a.yaml": thing})
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	t.Cleanup(func() {
		_ = definitions.Delete(context.WithoutCancel(t.Context()), "things."+group, metav1.DeleteOptions{})
	})
	with := func(q *message.Request) { q.Chart.URL = r.url + "/things.tgz" }
	r.done(t, message.Install, with)
	things := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}).Namespace(r.namespace)
	if _, err := things.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	r.done(t, message.Uninstall, nil)
	if _, err := definitions.Get(t.Context(), "things."+group, metav1.GetOptions{}); err != nil {
		t.Errorf("Helm removes no definition: %v", err)
	}
	r.done(t, message.Install, with) // the definition is there
}

func TestFailedHookIsReported(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			r.failPods(ctx)
			return false, nil
		})
	}()
	answer := r.run(t, message.Install, func(q *message.Request) { q.Chart.URL = r.url + "/hooked.tgz" })
	cancel()
	<-ended
	failed(t, answer, message.Refused, "pre-install", "Job/"+r.namespace+"/web-hook", "Failed")
	if !slices.Contains(r.progress, "waiting for the hook Job web-hook") {
		t.Errorf("progress %q", r.progress)
	}
	if diff := cmp.Diff(map[string]string{"sh.helm.release.v1.web.v1": "failed"}, r.records(t)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if got := r.done(t, message.Upgrade, nil); got.Status != "deployed" {
		t.Errorf("a release that has failed became %+v", got)
	}
}

// slow is a template of a Deployment that never is ready: no scheduler gives its pods to a node.
const slow = `apiVersion: apps/v1
kind: Deployment
metadata: {name: slow}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {schedulerName: nobody, containers: [{name: a, image: a}]}}
`

func TestReleaseHasTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, chart, kind, name, progress string
	}{
		"a hook that does not end":    {reason: "nothing runs it", chart: "hooked", kind: "Job", name: "web-hook", progress: "waiting for the hook Job web-hook"},
		"an object that is not ready": {reason: "nothing runs it", chart: "slow", kind: "Deployment", name: "slow", progress: "waiting until ready: Deployment slow"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.charts["slow.tgz"] = packChart(t, "slow", "1.0.0", files{"templates/a.yaml": slow})
			object := tc.kind + "/" + r.namespace + "/" + tc.name
			answer := r.run(t, message.Install, func(q *message.Request) {
				q.Chart.URL, q.Timeout, q.Wait = r.url+"/"+tc.chart+".tgz", 15*time.Second, true // a busy machine renders for some of them
			})
			failed(t, answer, message.Limit, "it was not done within 15s", object)
			if !slices.Contains(r.progress, tc.progress) {
				t.Errorf("progress %q, want %q: %s", r.progress, tc.progress, tc.reason)
			}
			if diff := cmp.Diff(map[string]string{"sh.helm.release.v1.web.v1": "failed"}, r.records(t)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			failed(t, r.run(t, message.Recover, func(q *message.Request) { q.OriginalVerb = message.Install }), message.Refused, "revision 1 failed", object)
			r.done(t, message.Uninstall, nil)
		})
	}
}

func TestRecoverFindsRevisionOfRequest(t *testing.T) {
	r := newRig(t)
	settle := func(was message.Verb, mark string) message.Answer {
		return r.run(t, message.Recover, func(q *message.Request) { q.OriginalVerb, q.ActionLabel, q.Timeout = was, mark, time.Nanosecond })
	}
	failed(t, settle(message.Install, "uid.1"), message.Unknown, "has no revision of it")
	r.done(t, message.Install, nil)
	if got := settle(message.Install, "uid.1").Release; got == nil || got.Revision != 1 || got.Status != "deployed" {
		t.Errorf("a revision that is deployed: got %+v", got)
	}
	r.setStatus(t, 1, releasecommon.StatusPendingInstall)
	failed(t, settle(message.Install, "uid.1"), message.Unknown, "was pending-install, and is recorded as failed now")
	failed(t, settle(message.Install, "uid.1"), message.Refused, "revision 1 failed: "+interruptedDescription)
	r.done(t, message.Upgrade, func(q *message.Request) { q.ActionLabel = "uid.2" })
	failed(t, settle(message.Upgrade, "uid.3"), message.Unknown, "has no revision of it")
	if got := settle(message.Upgrade, "uid.2").Release; got == nil || got.Revision != 2 {
		t.Errorf("an upgrade that is deployed: got %+v", got)
	}
	failed(t, settle(message.Uninstall, "uid.4"), message.Unknown, "is deployed at revision 2")
	r.setStatus(t, 2, releasecommon.StatusUninstalling)
	for range 2 {
		if got := settle(message.Uninstall, "uid.4").Release; got == nil || !got.Removed {
			t.Errorf("a removal goes on to its end: got %+v", got)
		}
	}
	if left := r.records(t); len(left) > 0 || r.data(t, "web") != nil {
		t.Errorf("left: %v", left)
	}
}

func TestUninstallRemovesOnlyObjectsOfRelease(t *testing.T) {
	r := newRig(t)
	r.done(t, message.Install, nil)
	patch := []byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":"other"}}}`)
	if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Patch(t.Context(), "web", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	got := r.done(t, message.Uninstall, nil)
	if !strings.Contains(got.Description, "not owned by this release") || !strings.Contains(got.Description, "[ConfigMap] web") || r.data(t, "web") == nil {
		t.Errorf("it does not say what it left: %+v", got)
	}
}

func TestRecordFitsInSecret(t *testing.T) {
	r := newRig(t)
	incompressible := make([]byte, 1<<20)
	_, _ = rand.Read(incompressible)
	r.charts["large.tgz"] = packChart(t, "large", "1.0.0", files{"files/a": string(incompressible), "templates/a.yaml": configMap})
	failed(t, r.run(t, message.Install, func(q *message.Request) { q.Chart.URL = r.url + "/large.tgz" }), message.Refused, "Too long")
}
