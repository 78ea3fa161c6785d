// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/api"
	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

func TestDeployWritesUploadedTemplate(t *testing.T) {
	w := newWorld(t)
	v := w.upload(module(secrets("TOKEN", hush+"1"), func(up *upload.Upload) { up.Message, up.Tag = "first", "v1" }))
	if w.deployment() != nil {
		t.Error("an upload alone makes a WorkerDeployment")
	}
	want := releasev1alpha1.Script{
		ScriptName: "hello", CompatibilityDate: "2026-01-15", MainModule: "index.js", SecretRef: "hello-" + v.ID,
		ScriptURLs: []string{"s3://workers/1234/hello/" + v.ID},
	}
	d := w.deploy(v.ID)
	if d.Version != v.ID || d.Author != "jane" || d.Message != "as discussed" || d.CreatedOn.IsZero() {
		t.Errorf("deployed %+v", d)
	}
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	w.asks("deployed", want, string(raw))
	if diff := cmp.Diff([]string{"1234/hello/" + v.ID + "/index.js", "_versions/1234/hello/" + v.ID + ".json"}, w.store.Keys()); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	all, err := w.Deployments(t.Context(), team, "hello")
	if diff := cmp.Diff([]Deployment{d}, all); err != nil || diff != "" {
		t.Errorf("deployments, %v (-want +got):\n%s", err, diff)
	}
	versions, err := w.Versions(t.Context(), team, "hello")
	if err != nil || len(versions) != 1 || versions[0].Message != "first" || versions[0].Tag != "v1" || versions[0].Author != "jane" {
		t.Errorf("versions are %+v, %v", versions, err)
	}
	stored, err := w.Version(t.Context(), team, "hello", v.ID)
	if diff := cmp.Diff([]string{"TOKEN"}, stored.SecretNames); err != nil || diff != "" {
		t.Errorf("secrets of the version (-want +got):\n%s", diff)
	}
}

func TestVersionSecretIsOwnedByWorkerDeployment(t *testing.T) {
	w := newWorld(t)
	v := w.upload(module(secrets("TOKEN", hush+"1")))
	if s := w.secret("hello-" + v.ID); len(s.OwnerReferences) > 0 {
		t.Errorf("before it is deployed it is owned by %+v", s.OwnerReferences)
	}
	w.deploy(v.ID)
	s := w.secret("hello-" + v.ID)
	wd := w.deployment()
	want := []metav1.OwnerReference{{APIVersion: "api.worker-deployment/v1alpha1", Kind: "WorkerDeployment", Name: "hello", UID: wd.UID}}
	if diff := cmp.Diff(want, s.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{api.LabelScript: "hello", api.LabelVersion: v.ID}, s.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if s.Immutable == nil || !*s.Immutable || string(s.Data["TOKEN"]) != hush+"1" {
		t.Errorf("the Secret is %v of %d keys", s.Immutable, len(s.Data))
	}
}

func TestDeployChangesOnlyTemplate(t *testing.T) {
	w := newWorld(t)
	w.served(module())
	wd := w.deployment()
	wd.Labels, wd.Annotations["note"], wd.Spec.ReleaseHistoryLimit = map[string]string{"stage": "production"}, "mine", 3
	if err := w.hub.client.Update(t.Context(), wd); err != nil {
		t.Fatal(err)
	}
	w.served(module())
	got := w.deployment()
	if got.UID != wd.UID || got.Labels["stage"] != "production" || got.Annotations["note"] != "mine" || got.Spec.ReleaseHistoryLimit != 3 {
		t.Errorf("it is %+v now", got)
	}
}

func TestUnderscoresBecomeHyphens(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a_b", "a-b"} {
		v, err := w.Upload(t.Context(), team, name, "jane", module())
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Deploy(t.Context(), team, name, v.ID, jane, false)
		if name == "a_b" && err != nil {
			t.Error(err)
		}
		if name == "a-b" {
			is(t, err, ErrConflict, "WorkerDeployment a-b has another script")
		}
	}
}

// rich is an upload with something of each kind.
func rich() *upload.Upload {
	return module(
		secrets("TOKEN", hush+"1", "KEY", hush+"2"),
		bindings(
			text("GREETING", "hello"),
			releasev1alpha1.Binding{Name: "LIMITS", Type: releasev1alpha1.BindingJSON, JSON: &apiextensionsv1.JSON{Raw: []byte(`{"n":1}`)}},
			releasev1alpha1.Binding{Name: "NOTICE", Type: releasev1alpha1.BindingTextBlob, Part: "notice.txt"},
		),
		func(up *upload.Upload) {
			up.Files = append(up.Files, upload.File{Name: "notice.txt", Type: releasev1alpha1.TypeText, Content: []byte("notice")})
		},
	)
}

func TestUploadInheritsFromPreviousVersion(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upload   *upload.Upload
		bindings []string
		secrets  map[string]string
		same     bool
		missing  string
	}{
		"nothing": {
			reason: "what an upload neither has nor keeps is gone",
			upload: module(),
		},
		"kept secrets": {
			reason: "the same values stay in the same Secret",
			upload: module(keep("secret_text")), secrets: map[string]string{"TOKEN": hush + "1", "KEY": hush + "2"}, same: true,
		},
		"the same secrets": {
			reason: "values are compared, wherever they come from",
			upload: module(secrets("KEY", hush+"2", "TOKEN", hush+"1")), secrets: map[string]string{"TOKEN": hush + "1", "KEY": hush + "2"}, same: true,
		},
		"kept secrets and another value": {
			reason: "what an upload says itself counts, and is in another Secret",
			upload: module(keep("secret_text"), secrets("TOKEN", hush+"3")), secrets: map[string]string{"TOKEN": hush + "3", "KEY": hush + "2"},
		},
		"an inherited secret": {
			reason: "a secret that is not named is gone, so it is another Secret",
			upload: module(inherit("TOKEN")), secrets: map[string]string{"TOKEN": hush + "1"},
		},
		"a secret that becomes a text": {
			reason: "a name has one value",
			upload: module(keep("secret_text"), bindings(text("TOKEN", "public"))), bindings: []string{"TOKEN"}, secrets: map[string]string{"KEY": hush + "2"},
		},
		"kept texts": {
			reason: "types are kept one by one",
			upload: module(keep("plain_text")), bindings: []string{"GREETING"},
		},
		"kept texts and JSON": {
			reason: "wrangler keeps what was set elsewhere with keep_vars",
			upload: module(keep("plain_text", "json")), bindings: []string{"GREETING", "LIMITS"},
		},
		"a kept text with another value": {
			reason: "what an upload says itself counts",
			upload: module(keep("plain_text"), bindings(text("GREETING", "good morning"))), bindings: []string{"GREETING"},
		},
		"inherited bindings": {
			reason: "they are inherited by their names, of whatever type",
			upload: module(inherit("LIMITS", "KEY")), bindings: []string{"LIMITS"}, secrets: map[string]string{"KEY": hush + "2"},
		},
		"a kept blob": {
			reason: "its module is not in this upload",
			upload: module(keep("text_blob", "plain_text")), bindings: []string{"GREETING"},
		},
		"an inherited blob": {
			reason: "its module is not in this upload, and the name is missing",
			upload: module(inherit("NOTICE")), missing: "inherit binding 'NOTICE' is invalid: the latest version has no binding NOTICE,",
		},
		"names that are not there": {
			reason: "all of them are named, in order",
			upload: module(inherit("ZERO", "GREETING", "NONE")), missing: "binding NONE, ZERO,",
		},
		"a KV namespace without an id": {
			reason: "wrangler may make none, and then names it as an inherited binding", upload: module(inherit("CACHE")),
			missing: "the latest version has no binding CACHE, and what wrangler would provision for one without an id (KV, R2, D1, " +
				"queues, AI Search, Agent Memory, dispatch namespaces, Flagship) is not supported",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.served(rich())
			v, err := w.Upload(t.Context(), team, "hello", "jane", tc.upload)
			if tc.missing != "" {
				is(t, err, ErrInvalid, tc.missing)
				if diff := cmp.Diff([]string{first.ID}, w.listed()); diff != "" {
					t.Errorf("%s: listed (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			w.deploy(v.ID)
			var names []string
			for _, b := range v.Script.Bindings {
				names = append(names, b.Name)
			}
			if diff := cmp.Diff(tc.bindings, names); diff != "" {
				t.Errorf("%s: bindings (-want +got):\n%s", tc.reason, diff)
			}
			ref := "hello-" + v.ID
			if tc.same {
				ref = first.Script.SecretRef
			}
			w.has(tc.reason, v, ref, tc.secrets)
		})
	}
}

// has checks the Secret of a version: none, if it has no secrets.
func (w *world) has(what string, v version.Version, ref string, values map[string]string) {
	w.t.Helper()
	if values == nil {
		ref = ""
	}
	if v.Script.SecretRef != ref {
		w.t.Fatalf("%s: secretRef is %q, want %q", what, v.Script.SecretRef, ref)
	}
	if ref == "" {
		return
	}
	if diff := cmp.Diff(values, w.values(ref)); diff != "" {
		w.t.Errorf("%s: secrets (-want +got):\n%s", what, diff)
	}
}

func TestUploadInheritsFromLatestVersion(t *testing.T) {
	w := newWorld(t)
	w.served(module(bindings(text("STAGE", "deployed"))))
	w.upload(module(bindings(text("STAGE", "latest"))))
	v := w.upload(module(keep("plain_text")))
	if diff := cmp.Diff([]releasev1alpha1.Binding{text("STAGE", "latest")}, v.Script.Bindings); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
}

func TestUploadWithoutDateGetsDefault(t *testing.T) {
	w := newWorld(t)
	v := w.served(module(func(up *upload.Upload) { up.Script.CompatibilityDate = "" }))
	if v.Script.CompatibilityDate != "2021-11-02" {
		t.Errorf("it is %s", v.Script.CompatibilityDate)
	}
}

func TestInvalidUploadIsNotSaved(t *testing.T) {
	cases := map[string]struct {
		reason, script, says string
		upload               *upload.Upload
	}{
		"a name":          {reason: "it is one of a Service, too", script: "Hello", says: "scriptName", upload: module()},
		"no main module":  {reason: "workerd would not start", script: "hello", says: "nowhere.js", upload: module(func(up *upload.Upload) { up.Script.MainModule = "nowhere.js" })},
		"a date":          {reason: "workerd knows no such date", script: "hello", says: "compatibilityDate", upload: module(func(up *upload.Upload) { up.Script.CompatibilityDate = "soon" })},
		"a secret's name": {reason: "it is one of an environment variable", script: "hello", says: "MY-TOKEN", upload: module(secrets("MY-TOKEN", hush+"1"))},
		"too many secrets": {
			reason: "an API server would not take the Secret, and would say so with the whole of it", script: "hello", says: "the limit is 1048576",
			upload: module(secrets("TOKEN", strings.Repeat(hush, 1<<18))),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.Upload(t.Context(), team, tc.script, "jane", tc.upload)
			is(t, err, ErrInvalid, tc.says)
			if len(w.store.Keys()) > 0 || len(w.hub.writes) > 0 {
				t.Errorf("%s: stored %q, written %q", tc.reason, w.store.Keys(), w.hub.writes)
			}
		})
	}
}

func TestFailedSaveLeavesNothing(t *testing.T) {
	for name, away := range map[string]string{"a module": "/index.js", "the description": ".json"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.store.FailPuts = []string{away}
			_, err := w.Upload(t.Context(), team, "hello", "jane", module(secrets("TOKEN", hush+"1")))
			is(t, err, store.ErrUnavailable)
			if w.deployment() != nil || len(w.secretsOfVersions()) > 0 {
				t.Errorf("there are a WorkerDeployment %v and Secrets %q", w.deployment(), w.secretsOfVersions())
			}
			w.store.FailPuts = nil
			v := w.served(module(inherit()))
			if diff := cmp.Diff([]string{v.ID}, w.listed()); diff != "" {
				t.Errorf("listed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedSecretCleanupDoesNotHideSaveError(t *testing.T) {
	w := newWorld(t)
	w.store.FailPuts, w.hub.faults["delete Secret"] = []string{".json"}, errors.New("boom")
	_, err := w.Upload(t.Context(), team, "hello", "jane", module(secrets("TOKEN", hush+"1")))
	is(t, err, store.ErrUnavailable)
	if len(w.secretsOfVersions()) != 1 {
		t.Errorf("Secrets are %q", w.secretsOfVersions())
	}
}

func TestHostReturnsAccountHost(t *testing.T) {
	w := newWorld(t)
	if err := w.Exists(t.Context(), team, "hello"); err == nil {
		t.Error("it exists before it is deployed")
	}
	if host, err := w.Host(t.Context(), team, "my_script"); err != nil || host != "worker-my-script.workers-1234.svc" {
		t.Errorf("without a WorkerAccount it is %q, %v", host, err)
	}
	w.create(&accountv1alpha1.WorkerAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: team.Namespace, Name: "a"}, Status: accountv1alpha1.WorkerAccountStatus{Host: "workers.example.com"},
	})
	if host, err := w.Host(t.Context(), team, "my_script"); err != nil || host != "workers.example.com" {
		t.Errorf("with a host it is %q, %v", host, err)
	}
	w.served(module())
	if err := w.Exists(t.Context(), team, "hello"); err != nil {
		t.Error(err)
	}
}

func TestMissingObjectIsNotFound(t *testing.T) {
	const id = "019aa000-0000-7000-8000-000000000001"
	w := newWorld(t)
	for name, do := range map[string]func() error{
		"Exists":      func() error { return w.Exists(t.Context(), team, "hello") },
		"Delete":      func() error { return w.Delete(t.Context(), team, "hello") },
		"Deployments": func() error { _, err := w.Deployments(t.Context(), team, "hello"); return err },
		"Versions":    func() error { _, err := w.Versions(t.Context(), team, "hello"); return err },
		"Current":     func() error { _, err := w.Current(t.Context(), team, "hello"); return err },
		"SecretNames": func() error { _, err := w.SecretNames(t.Context(), team, "hello"); return err },
		"SetSecrets":  func() error { return w.SetSecrets(t.Context(), team, "hello", nil, jane) },
		"AddVersion":  func() error { _, err := w.AddVersion(t.Context(), team, "hello", nil, jane); return err },
	} {
		if err := do(); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			is(t, err, ErrNotFound, "hello")
		}
	}
	_, err := w.Deploy(t.Context(), team, "hello", id, jane, false)
	is(t, err, ErrVersionNotFound, id)
	w.served(module())
	for _, id := range []string{id, "latest", "../../5678/hello/" + id} {
		_, err := w.Version(t.Context(), team, "hello", id)
		is(t, err, ErrVersionNotFound)
		_, err = w.Deploy(t.Context(), team, "hello", id, jane, false)
		is(t, err, ErrVersionNotFound)
	}
	if slices.Contains(w.hub.writes, "delete WorkerDeployment") {
		t.Error("something was deleted")
	}
}
