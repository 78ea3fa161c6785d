// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

// database is a Secret that is for no script, and could be a variable's.
func (w *world) database(labels map[string]string) {
	w.t.Helper()
	s := byHand("database", map[string][]byte{"PASSWORD": []byte(hush + "database")})
	s.Labels = labels
	w.create(s)
}

// notStolen checks that nothing names the Secret, owns it, or has what is in it.
func (w *world) notStolen() {
	w.t.Helper()
	if wd := w.deployment(); wd != nil && wd.Spec.Template.SecretRef == "database" {
		w.t.Error("the WorkerDeployment names it")
	}
	var all corev1.SecretList
	if err := w.hub.client.List(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all.Items {
		if _, has := s.Data["PASSWORD"]; has && s.Name != "database" {
			w.t.Errorf("Secret %s has its value", s.Name)
		}
		if s.Name == "database" && len(s.OwnerReferences) > 0 {
			w.t.Errorf("it goes with %+v", s.OwnerReferences)
		}
	}
}

// TestForgedDescriptionNamesNoSecret: a credential for one account's prefix of the
// store is none for the Secrets of its namespace.
func TestForgedDescriptionNamesNoSecret(t *testing.T) {
	for name, root := range map[string]string{"below the account's prefix": "", "where descriptions are": "_versions/"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.database(map[string]string{api.LabelVersion: "0", api.LabelScript: "other"})
			honest := w.served(module(secrets("TOKEN", hush+"1")))
			v, err := version.New("eve")
			if err != nil {
				t.Fatal(err)
			}
			v.Script, v.SecretNames = honest.Script, []string{"PASSWORD"}
			v.Script.SecretRef = "database"
			if err := w.versions.Save(t.Context(), team.ID, v, nil); err != nil {
				t.Fatal(err)
			}
			key := "1234/hello/" + v.ID + ".json"
			description := w.store.Objects["_versions/"+key]
			delete(w.store.Objects, "_versions/"+key)
			w.store.Objects[root+key] = description

			// The next honest deploy keeps secrets, as wrangler always does, and names one by hand.
			next, err := w.Upload(t.Context(), team, "hello", "jane", module(keep("secret_text")))
			if err == nil {
				w.deploy(next.ID)
			}
			if (err == nil) != (root == "") {
				t.Errorf("the next upload: %v", err)
			}
			if _, err := w.Upload(t.Context(), team, "hello", "jane", module(inherit("PASSWORD"))); !errors.Is(err, ErrInvalid) {
				t.Errorf("an upload that inherits its key: %v", err)
			}
			if _, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, true); err == nil {
				t.Error("it is deployed")
			} else if root != "" {
				is(t, err, ErrInvalid, "there is no Secret database with the label workers.spokelet.io/script=hello")
			}
			w.notStolen()
		})
	}
}

// TestUnlabelledSecretIsNotCopied: who may write those, and no Secrets, has the
// API copy the values of one into a version's.
func TestUnlabelledSecretIsNotCopied(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"without a label": nil, "of another script": {api.LabelScript: "other"}, "of another script's version": {api.LabelScript: "other", api.LabelVersion: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.database(labels)
			w.kubectl(releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", SecretRef: "database", ScriptURLs: []string{"s3://workers/1234/mine"}})
			for what, do := range map[string]func() error{
				"keep": func() error {
					_, err := w.Upload(t.Context(), team, "hello", "eve", module(keep("secret_text")))
					return err
				},
				"inherit": func() error {
					_, err := w.Upload(t.Context(), team, "hello", "eve", module(inherit("PASSWORD")))
					return err
				},
				"set": func() error {
					return w.SetSecrets(t.Context(), team, "hello", map[string]*string{"KEY": new(hush)}, jane)
				},
				"add": func() error {
					_, err := w.AddVersion(t.Context(), team, "hello", map[string]*string{"KEY": new(hush)}, jane)
					return err
				},
			} {
				err := do()
				if err == nil {
					t.Errorf("%s: no error", what)
					continue
				}
				is(t, err, ErrInvalid, "there is no Secret database with the label")
			}
			var all corev1.SecretList
			if err := w.hub.client.List(t.Context(), &all, client.HasLabels{api.LabelVersion}); err != nil {
				t.Fatal(err)
			}
			for _, s := range all.Items {
				if s.Name != "database" {
					t.Errorf("Secret %s was made", s.Name)
				}
			}
		})
	}
}

// TestUndeployedUploadsAreLimited: they are no more than those of a script that is.
func TestUndeployedUploadsAreLimited(t *testing.T) {
	w := newWorld(t)
	for range minVersions + 10 {
		w.upload(module())
	}
	if n := len(w.listed()); n != minVersions {
		t.Errorf("%d versions are stored", n)
	}
}

// large is a template of half a MiB.
func large(n int) func(*upload.Upload) {
	return func(up *upload.Upload) {
		for i := range 8 {
			up.Script.Bindings = append(up.Script.Bindings, text(fmt.Sprintf("B%d", i), strings.Repeat(strconv.Itoa(n), 64<<10)))
		}
	}
}

func TestListsReadOnlySummaries(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.served(module(large(n)))
	}
	for name, list := range map[string]func() (int, error){
		"versions":    func() (int, error) { all, err := w.Versions(t.Context(), team, "hello"); return len(all), err },
		"deployments": func() (int, error) { all, err := w.Deployments(t.Context(), team, "hello"); return len(all), err },
	} {
		w.store.ReadBytes = 0
		if n, err := list(); err != nil || n != 3 || w.store.ReadBytes > 3*32<<10 { // of 1.5 MiB
			t.Errorf("%s: %d are listed, for which %d bytes are read, %v", name, n, w.store.ReadBytes, err)
		}
	}
}

// vars is an upload with JSON.
func vars(raw string) func(*upload.Upload) {
	return bindings(releasev1alpha1.Binding{Name: "VARS", Type: releasev1alpha1.BindingJSON, JSON: &apiextensionsv1.JSON{Raw: json.RawMessage(raw)}})
}

// TestVersionIsRecognisedAfterHubReencodesJSON: the hub keeps values, with sorted keys.
func TestVersionIsRecognisedAfterHubReencodesJSON(t *testing.T) {
	for name, raw := range map[string]string{
		"keys": `{"zebra": 1, "apple": 2}`, "nested": `[{"b": {"z": 1, "a": [true, null]}, "a": {}}]`, "numbers": `{"b": 1.0, "a": [1e2, -0.0, 12345678901234567890]}`,
		"Unicode": `{"é": "\u00e9\ud83d\ude00", "a": "<&>\u2028"}`, "a key twice": `{"a": 1, "a": 2}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.served(module(vars(raw)))
			current, err := w.Current(t.Context(), team, "hello")
			if err != nil || current.ID != first.ID || current.Author != jane.Name {
				t.Errorf("version %s of %q is deployed, %v, want %s", current.ID, current.Author, err, first.ID)
			}
			if all, err := w.Versions(t.Context(), team, "hello"); err != nil || len(all) != 1 {
				t.Errorf("versions are %+v, %v", all, err)
			}
			second := w.upload(module(vars(raw), secrets("TOKEN", hush+"1")))
			is(t, w.SetSecrets(t.Context(), team, "hello", map[string]*string{"KEY": new(hush)}, jane), ErrNotLatest, second.ID)
			w.deploy(second.ID)
			if order := w.order(); len(order) != 2 || order[0] != second.ID || order[1] != first.ID {
				t.Errorf("deployments are of %q", order)
			}
		})
	}
}
