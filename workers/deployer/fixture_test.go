// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store/storetest"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

// hush is in every value of a secret, and nowhere else.
const hush = "hush-"

var (
	team = Account{ID: "1234", Namespace: "team-a"}
	jane = Author{Name: "jane", Message: "as discussed"}
)

func newUID() types.UID { return types.UID(uuid.NewString()) }

// world is a hub with an operator, an object store, and a deployer.
type world struct {
	t        *testing.T
	hub      *fakeHub
	store    *storetest.Memory
	versions *version.Repository
	*Deployer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, hub: newHub(t), store: storetest.NewMemory()}
	w.versions = version.NewRepository(w.store, w.store, "workers")
	w.Deployer = New(Config{
		Client: w.hub.faulty(), Versions: w.versions, History: w.versions, Bucket: "workers", Log: testr.New(t),
	})
	t.Cleanup(w.checkLeft)
	return w
}

// checkLeft holds of every test: secrets are in Secrets alone, and no watch is left open.
func (w *world) checkLeft() {
	for key, content := range w.store.Objects {
		if strings.Contains(content, hush) {
			w.t.Errorf("object %s has the value of a secret: %s", key, content)
		}
	}
	for _, list := range []client.ObjectList{&deploymentv1alpha1.WorkerDeploymentList{}, &releasev1alpha1.WorkerReleaseList{}} {
		if err := w.hub.client.List(context.WithoutCancel(w.t.Context()), list); err != nil {
			w.t.Fatal(err)
		}
		if raw, err := json.Marshal(list); err != nil || strings.Contains(string(raw), hush) {
			w.t.Errorf("the value of a secret is in %s, %v", raw, err)
		}
	}
	if n := w.hub.open(); n > 0 {
		w.t.Errorf("%d watches are left open", n)
	}
}

// module is an upload of one module, with changes.
func module(change ...func(*upload.Upload)) *upload.Upload {
	up := &upload.Upload{
		Script: releasev1alpha1.Script{CompatibilityDate: "2026-01-15", MainModule: "index.js"},
		Files:  []upload.File{{Name: "index.js", Type: releasev1alpha1.TypeESModule, Content: []byte("export default {}")}},
	}
	for _, apply := range change {
		apply(up)
	}
	return up
}

// secrets are pairs of a name and a value.
func secrets(pairs ...string) func(*upload.Upload) {
	return func(up *upload.Upload) {
		up.Secrets = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			up.Secrets[pairs[i]] = pairs[i+1]
		}
	}
}

func keep(types ...string) func(*upload.Upload) {
	return func(up *upload.Upload) { up.Keep = types }
}

func inherit(names ...string) func(*upload.Upload) {
	return func(up *upload.Upload) { up.Inherit = names }
}

func bindings(all ...releasev1alpha1.Binding) func(*upload.Upload) {
	return func(up *upload.Upload) { up.Script.Bindings = all }
}

func text(name, value string) releasev1alpha1.Binding {
	return releasev1alpha1.Binding{Name: name, Type: releasev1alpha1.BindingPlainText, Text: value}
}

// upload stores a version of script hello.
func (w *world) upload(up *upload.Upload) version.Version {
	w.t.Helper()
	v, err := w.Upload(w.t.Context(), team, "hello", jane.Name, up)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// tick returns in the next millisecond: the times of versions are no finer.
func tick() {
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; {
		runtime.Gosched()
	}
}

// deploy has a version of script hello served.
func (w *world) deploy(id string) Deployment {
	w.t.Helper()
	d, err := w.Deploy(w.t.Context(), team, "hello", id, jane, true)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// served uploads and deploys.
func (w *world) served(up *upload.Upload) version.Version {
	w.t.Helper()
	v := w.upload(up)
	w.deploy(v.ID)
	return v
}

// is checks what an error is, that it has words, and no value of a secret.
func is(t *testing.T, err, target error, words ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want one that is %q", err, target)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), hush) {
		t.Errorf("error %q has the value of a secret", err)
	}
}

// deployment returns the WorkerDeployment hello, or nil.
func (w *world) deployment() *deploymentv1alpha1.WorkerDeployment {
	w.t.Helper()
	var wd deploymentv1alpha1.WorkerDeployment
	err := w.hub.client.Get(context.WithoutCancel(w.t.Context()), client.ObjectKey{Namespace: team.Namespace, Name: "hello"}, &wd)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return &wd
}

// asks checks what the WorkerDeployment asks for.
func (w *world) asks(what string, template releasev1alpha1.Script, annotation string) {
	w.t.Helper()
	wd := w.deployment()
	if wd == nil {
		w.t.Fatalf("%s: there is no WorkerDeployment", what)
	}
	if diff := cmp.Diff(template, wd.Spec.Template); diff != "" {
		w.t.Errorf("%s: template (-want +got):\n%s", what, diff)
	}
	if diff := cmp.Diff(annotation, wd.Annotations[api.AnnotationDeployment]); diff != "" {
		w.t.Errorf("%s: annotation (-want +got):\n%s", what, diff)
	}
}

// kubectl writes a template of script hello, as people do without this API.
func (w *world) kubectl(template releasev1alpha1.Script) *deploymentv1alpha1.WorkerDeployment {
	w.t.Helper()
	wd := w.deployment()
	if wd == nil {
		wd = &deploymentv1alpha1.WorkerDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: team.Namespace, Name: "hello"},
			Spec:       deploymentv1alpha1.WorkerDeploymentSpec{Template: template},
		}
		w.create(wd)
		return w.deployment()
	}
	wd.Spec.Template = template
	if err := w.hub.client.Update(w.t.Context(), wd); err != nil {
		w.t.Fatal(err)
	}
	return w.deployment()
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		if err := w.hub.client.Create(w.t.Context(), obj); err != nil {
			w.t.Fatal(err)
		}
	}
}

// byHand is a Secret for script hello that no upload has made.
func byHand(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team.Namespace, Name: name, Labels: map[string]string{api.LabelScript: "hello"}}, Data: data}
}

// secret returns a Secret of the team.
func (w *world) secret(name string) *corev1.Secret {
	w.t.Helper()
	var s corev1.Secret
	if err := w.hub.client.Get(w.t.Context(), client.ObjectKey{Namespace: team.Namespace, Name: name}, &s); err != nil {
		w.t.Fatal(err)
	}
	return &s
}

// values are those of a Secret.
func (w *world) values(name string) map[string]string {
	w.t.Helper()
	values := map[string]string{}
	for key, value := range w.secret(name).Data {
		values[key] = string(value)
	}
	return values
}

// secretsOfVersions are the names of Secrets that versions of script hello have.
func (w *world) secretsOfVersions() []string {
	w.t.Helper()
	var list corev1.SecretList
	if err := w.hub.client.List(w.t.Context(), &list, client.InNamespace(team.Namespace), client.HasLabels{api.LabelVersion}); err != nil {
		w.t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// listed are the ids of the stored versions of script hello, the newest first.
func (w *world) listed() []string {
	w.t.Helper()
	all, err := w.versions.List(w.t.Context(), team.ID, "hello")
	if err != nil {
		w.t.Fatal(err)
	}
	return ids(all)
}

func ids(all []version.Summary) []string {
	var ids []string
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

// order is that of the versions that were deployed, the current one first.
func (w *world) order() []string {
	w.t.Helper()
	all, err := w.Deployments(w.t.Context(), team, "hello")
	if err != nil {
		w.t.Fatal(err)
	}
	var ids []string
	for _, d := range all {
		ids = append(ids, d.Version)
	}
	return ids
}
