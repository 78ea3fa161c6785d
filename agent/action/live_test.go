// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/agent/kubedoor"
	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// liveRig is a namespace of a real API server in which alice may do some things, and the
// engine of one process.
type liveRig struct {
	kube      kubernetes.Interface
	config    Config
	namespace string
	alice     wire.Requester
	uid       string
}

func newLiveRig(t *testing.T) *liveRig {
	t.Helper()
	cfg := livetest.Config(t, "SPOKELET_TEST_KUBECONFIG")
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	namespace := livetest.Namespace(t, kube, "action-")
	door, err := kubedoor.New(kubedoor.Config{Rest: cfg, Enabled: true, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	r := &liveRig{
		kube: kube, namespace: namespace, uid: namespace, alice: wire.Requester{User: "alice-" + namespace},
		config: Config{
			Door: door, Resources: mapping.New(kube.Discovery()),
			Entries: kube.CoreV1().ConfigMaps(namespace), Releases: &fakeHelm{}, Logger: logr.Discard(),
		},
	}
	r.grant(t)
	return r
}

// grant lets alice write all that the tests write.
func (r *liveRig) grant(t *testing.T) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "alice"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps"}, Resources: []string{"configmaps", "secrets", "deployments"}, Verbs: []string{"*"}},
	}}
	if _, err := r.kube.RbacV1().Roles(r.namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "alice"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: kubedoor.DefaultUserPrefix + r.alice.User}},
	}
	if _, err := r.kube.RbacV1().RoleBindings(r.namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The authorizer learns of it a moment after it was written: alice has her rights
	// once a deletion of what is not there is refused for that reason.
	livetest.Eventually(t, "alice has her rights", func() bool {
		refusal := r.execute(t, "probe", 1, wire.Action{Verb: wire.VerbDelete, Target: wire.Target{Resource: "cm", Namespace: r.namespace, Name: "none"}}).Refusal
		return refusal != nil && refusal.Status == metav1.StatusReasonNotFound
	})
}

// execute has a new process execute one action of alice.
func (r *liveRig) execute(t *testing.T, name string, generation int64, a wire.Action) wire.ActionResult {
	t.Helper()
	a.MaxBytes = wire.MaxViewBytes
	if a.Requester.User == "" {
		a.Requester = r.alice
	}
	v := version(t, a, generation)
	v.Key, v.UID = "mcm/live/"+name, r.uid+"-"+name
	p := startEngine(t, r.config)
	defer p.stop()
	p.send(t, v)
	var result wire.ActionResult
	livetest.Eventually(t, "the action "+name+" has a result", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		var ok bool
		result, ok = p.results[v.Key]
		return ok
	})
	return result
}

func (r *liveRig) configMap(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := r.kube.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func (r *liveRig) template(name, data string) wire.Action {
	a := action(wire.VerbCreate, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{%s}}`, name, data))
	a.Requester, a.Target.Namespace = r.alice, r.namespace
	return a
}

func TestLiveActionsOnObject(t *testing.T) {
	r := newLiveRig(t)
	create := r.template("settings", `"a":"1"`)
	decode(t, r.execute(t, "create", 1, create))
	uid := r.configMap(t, "settings").UID
	decode(t, r.execute(t, "create", 1, create)) // another process
	if now := r.configMap(t, "settings").UID; now != uid {
		t.Error("it was created twice")
	}
	if refusal := r.execute(t, "create", 2, create).Refusal; refusal == nil || refusal.Status != metav1.StatusReasonAlreadyExists || !strings.Contains(refusal.Message, `configmaps "settings" already exists`) {
		t.Errorf("%+v, want the API server's answer to another generation", refusal)
	}

	theirs := []byte(`{"metadata":{"labels":{"theirs":"yes"}},"data":{"b":"2"}}`)
	if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Patch(t.Context(), "settings", types.MergePatchType, theirs, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	update := r.template("settings", `"a":"3"`)
	update.Verb = wire.VerbUpdate
	decode(t, r.execute(t, "update", 1, update))
	updated := r.configMap(t, "settings")
	if updated.Data["a"] != "3" || updated.Data["b"] != "2" || updated.Labels["theirs"] != "yes" || !strings.HasSuffix(updated.Annotations[Annotation], "-update/1") {
		t.Errorf("%v %v %v", updated.Data, updated.Labels, updated.Annotations)
	}
	decode(t, r.execute(t, "update", 1, update))
	if now := r.configMap(t, "settings"); now.ResourceVersion != updated.ResourceVersion {
		t.Error("it was updated twice")
	}

	remove := wire.Action{Verb: wire.VerbDelete, Target: wire.Target{Resource: "configmaps", Namespace: r.namespace, Name: "settings"}}
	for range 2 {
		if result := r.execute(t, "delete", 1, remove); result.Refusal != nil || result.Result != nil {
			t.Errorf("%+v, want that it is done", result)
		}
	}
	if _, err := r.kube.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestLiveOutdatedPatchIsRefused(t *testing.T) {
	r := newLiveRig(t)
	for _, web := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	} {
		a := action(wire.VerbCreate, web)
		a.Requester, a.Target.Namespace = r.alice, r.namespace
		e := &Engine{cfg: r.config}
		kind := "x"
		if strings.Contains(web, "apps/v1") {
			kind = "y"
		}
		decode(t, r.execute(t, kind, 1, a))
		a.Verb = wire.VerbUpdate
		p, err := e.buildPlan(decodeRequest(version(t, a, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.connect(p); err != nil {
			t.Fatal(err)
		}
		p.entry.Version = "1"
		if _, err := p.patch(t.Context()); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v, want a conflict", p.entry.Resource, err)
		}
	}
}

func TestLiveUpdateMergesLists(t *testing.T) {
	r := newLiveRig(t)
	const web = `{"apiVersion":"%s","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":0,%s"template":{%s"spec":{"containers":[%s]}}}}`
	create := action(wire.VerbCreate, fmt.Sprintf(web, "extensions/v1beta1", "", `"metadata":{"labels":{"app":"web"}},`, `{"name":"web","image":"web:1"},{"name":"sidecar","image":"proxy:1"}`))
	create.Requester, create.Target.Namespace = r.alice, r.namespace
	created := r.execute(t, "web", 1, create)
	decode(t, created)
	if len(created.Warnings) != 1 || !strings.HasPrefix(created.Warnings[0], "apps/v1 is used in place of extensions/v1beta1") {
		t.Errorf("warnings are %v", created.Warnings)
	}
	update := action(wire.VerbUpdate, fmt.Sprintf(web, "apps/v1", "", "", `{"name":"web","image":"web:2"}`))
	update.Requester, update.Target.Namespace = r.alice, r.namespace
	got := decode(t, r.execute(t, "web", 2, update))
	containers, _, _ := unstructured.NestedSlice(got, "spec", "template", "spec", "containers")
	var images []any
	for _, c := range containers {
		images = append(images, c.(map[string]any)["image"])
	}
	if diff := cmp.Diff([]any{"web:2", "proxy:1"}, images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

func TestLiveActionHasRightsOfRequester(t *testing.T) {
	r := newLiveRig(t)
	foreign := r.template("settings", `"a":"1"`)
	foreign.Requester.User = "bob-" + r.namespace
	refusal := r.execute(t, "bob", 1, foreign).Refusal
	want := fmt.Sprintf(`configmaps is forbidden: User "hub:%s" cannot create resource "configmaps"`, foreign.Requester.User)
	if refusal == nil || refusal.Status != metav1.StatusReasonForbidden || !strings.Contains(refusal.Message, want) {
		t.Errorf("%+v, want %s", refusal, want)
	}
	// What was refused has an outcome: rights that come later change nothing.
	foreign.Requester = r.alice
	if refusal := r.execute(t, "bob", 1, foreign).Refusal; refusal == nil {
		t.Error("it was executed a second time")
	}
}

func TestLiveSecretsAreMasked(t *testing.T) {
	r := newLiveRig(t)
	a := action(wire.VerbCreate, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"password":"hunter2"}}`)
	a.Requester, a.Target.Namespace = r.alice, r.namespace
	result := r.execute(t, "secret", 1, a)
	data, _, _ := unstructured.NestedStringMap(decode(t, result), "data")
	if data["password"] != "***" || strings.Contains(string(result.Result), "aHVudGVyMg==") {
		t.Errorf("the result is %s", result.Result)
	}
}

func TestLiveInterruptedActionIsResolved(t *testing.T) {
	r := newLiveRig(t)
	a := r.template("settings", `"a":"1"`)
	v := version(t, a, 1)
	v.UID = r.uid + "-cut"
	// A process that makes the object and dies.
	e, err := New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	defer e.shutDown()
	p, err := e.prepare(t.Context(), decodeRequest(v))
	if err == nil {
		err = e.log.createEntry(t.Context(), p.request, p.entry)
	}
	if err == nil {
		_, err = e.perform(t.Context(), p)
	}
	if err != nil {
		t.Fatal(err)
	}
	decode(t, r.execute(t, "cut", 1, a))
	// One that dies before.
	b := r.template("others", `"a":"1"`)
	v = version(t, b, 1)
	v.UID = r.uid + "-before"
	if p, err = e.prepare(context.WithoutCancel(t.Context()), decodeRequest(v)); err == nil {
		err = e.log.createEntry(t.Context(), p.request, p.entry)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := causeIn(r.execute(t, "before", 1, b)); got != wire.CauseUnknown {
		t.Errorf("cause %q", got)
	}
}
