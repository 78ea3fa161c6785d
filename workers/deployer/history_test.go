// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/version"
)

// mine is a template that no upload made.
func mine(url string) releasev1alpha1.Script {
	return releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "01/15/2026", ScriptsURLs: []string{"s3://workers/1234/" + url}}
}

func (w *world) releaseOf(revision int64) *releasev1alpha1.WorkerRelease {
	w.t.Helper()
	var r releasev1alpha1.WorkerRelease
	if err := w.hub.client.Get(w.t.Context(), client.ObjectKey{Namespace: team.Namespace, Name: fmt.Sprintf("hello-%d", revision)}, &r); err != nil {
		w.t.Fatal(err)
	}
	return &r
}

func TestKubectlTemplateIsVersion(t *testing.T) {
	w := newWorld(t)
	w.kubectl(mine("one"))
	w.kubectl(mine("two"))
	one, two := string(w.releaseOf(1).UID), string(w.releaseOf(2).UID)
	v, err := w.Current(t.Context(), team, "hello")
	if err != nil || v.ID != two || v.Author != "" {
		t.Errorf("version %s of %q is deployed, %v, want %s", v.ID, v.Author, err, two)
	}
	if diff := cmp.Diff([]string{two, one}, w.order()); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	all, err := w.Versions(t.Context(), team, "hello")
	got := ids(all)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values([]string{one, two})), got); err != nil || diff != "" {
		t.Errorf("versions, %v (-want +got):\n%s", err, diff)
	}
	for _, id := range []string{one, two} {
		if v, err := w.Version(t.Context(), team, "hello", id); err != nil || v.ID != id {
			t.Errorf("version %s is %+v, %v", id, v, err)
		}
	}

	d := w.deploy(one)
	if d.Version != one || w.order()[0] != one {
		t.Errorf("deployed %+v, and the order is %q", d, w.order())
	}
	want := mine("one")
	want.CompatibilityDate, want.ScriptURLs, want.ScriptsURLs = "2026-01-15", want.ScriptsURLs, nil
	w.asks("the release's template", want, w.deployment().Annotations[api.AnnotationDeployment])
}

func TestUnobservedTemplateIsVersion(t *testing.T) {
	w := newWorld(t)
	w.hub.operator.silent = true
	wd := w.kubectl(mine("one"))
	v, err := w.Current(t.Context(), team, "hello")
	if err != nil || v.ID != string(wd.UID) {
		t.Errorf("version %s is deployed, %v", v.ID, err)
	}
	if v, err = w.Version(t.Context(), team, "hello", string(wd.UID)); err != nil || !cmp.Equal(v.Script, mine("one")) {
		t.Errorf("it is %+v, %v", v, err)
	}
	if names, err := w.SecretNames(t.Context(), team, "hello"); err != nil || len(names) > 0 {
		t.Errorf("it has the secrets %q, %v", names, err)
	}
}

func TestAnnotationAppliesToItsTemplateOnly(t *testing.T) {
	w := newWorld(t)
	first := w.served(module())
	w.kubectl(mine("one"))
	all, err := w.Deployments(t.Context(), team, "hello")
	if err != nil {
		t.Fatal(err)
	}
	wd := w.deployment()
	if all[0].ID != string(wd.UID) || all[0].Version != string(w.releaseOf(2).UID) || all[0].Author != "" {
		t.Errorf("the current deployment is %+v", all[0])
	}
	if len(all) != 2 || all[1].Version != first.ID || all[1].Author != jane.Name {
		t.Errorf("before it was %+v", all[1:])
	}
}

func TestRejectedReleaseIsNoDeployment(t *testing.T) {
	w := newWorld(t)
	w.kubectl(mine("one"))
	w.hub.operator.rejects = syntaxError
	w.kubectl(mine("bad"))
	if diff := cmp.Diff([]string{string(w.releaseOf(2).UID), string(w.releaseOf(1).UID)}, w.order()); diff != "" {
		t.Errorf("while it is asked for (-want +got):\n%s", diff)
	}
	w.kubectl(mine("one"))
	if diff := cmp.Diff([]string{string(w.releaseOf(1).UID)}, w.order()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

func TestReleaseWithoutRevisionIsNoDeployment(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*releasev1alpha1.WorkerRelease)
	}{
		"no revision": {
			reason: "the operator has made it and ended before it became current",
			change: func(r *releasev1alpha1.WorkerRelease) { r.Status.Revision = 0 },
		},
		"another owner": {
			reason: "it is of a WorkerDeployment that had the script before, or of nobody",
			change: func(r *releasev1alpha1.WorkerRelease) { r.OwnerReferences, r.Status.Revision = nil, 7 },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := w.served(module())
			r := w.releaseOf(1)
			r.Name, r.ResourceVersion, r.Spec.Script = "hello-x", "", mine("x")
			tc.change(r)
			revision := r.Status.Revision
			w.create(r)
			r.Status.Revision = revision
			if err := w.hub.client.Status().Update(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{v.ID}, w.order()); diff != "" {
				t.Errorf("%s: deployments (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOldestWorkerDeploymentOwnsScript(t *testing.T) {
	w := newWorld(t)
	now := w.kubectl(mine("one"))
	older := now.DeepCopy()
	older.Name, older.ResourceVersion, older.CreationTimestamp = "older", "", metav1.NewTime(now.CreationTimestamp.Add(-time.Hour))
	older.Spec.Template = mine("older")
	w.create(older)
	v, err := w.Current(t.Context(), team, "hello")
	if err != nil || v.Script.ScriptURLs[0] != "s3://workers/1234/older" {
		t.Errorf("%+v is deployed, %v", v, err)
	}
}

// old is a version of long ago, with a Secret.
func (w *world) old(n byte) version.Version {
	w.t.Helper()
	id := uuid.UUID{0x01, 0x9a, 0xa0, 6: 0x70, 8: 0x80, 15: n}.String()
	v := version.Version{Summary: version.Summary{ID: id, CreatedOn: time.Unix(1.76e9+int64(n), 0).UTC(), Author: "joe"}, Script: releasev1alpha1.Script{
		ScriptName: "hello", CompatibilityDate: "2026-01-15", MainModule: "index.js", ScriptURLs: []string{version.URL("workers", team.ID, "hello", id)},
	}}
	v.Script.SecretRef = "hello-" + id
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: team.Namespace, Name: v.Script.SecretRef, CreationTimestamp: metav1.NewTime(v.CreatedOn),
			Labels: map[string]string{api.LabelScript: "hello", api.LabelVersion: id},
		},
		Data: map[string][]byte{"TOKEN": []byte(hush + id)},
	})
	if err := w.versions.Save(w.t.Context(), team.ID, v, []version.File{{Name: "index.js", Type: releasev1alpha1.TypeESModule}}); err != nil {
		w.t.Fatal(err)
	}
	return v
}

func TestUnusedVersionsAndSecretsAreRemoved(t *testing.T) {
	w := newWorld(t)
	var all []version.Version
	for n := range byte(30) {
		all = append(all, w.old(n))
		if n == 2 || n == 4 {
			w.deploy(all[n].ID) // a release needs it
		}
	}
	w.create(byHand("mine", map[string][]byte{"TOKEN": []byte(hush)}))
	v := w.served(module(secrets("TOKEN", hush+"1")))

	want := []string{v.ID}
	for i := 29; i > 10; i-- { // the 20 newest, this one included
		want = append(want, all[i].ID)
	}
	want = append(want, all[4].ID, all[2].ID)
	if diff := cmp.Diff(want, w.listed()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	var secrets, objects []string
	for _, id := range want {
		secrets = append(secrets, "hello-"+id)
		objects = append(objects, "_versions/1234/hello/"+id+".json", "1234/hello/"+id+"/index.js")
	}
	slices.Sort(secrets)
	slices.Sort(objects)
	if diff := cmp.Diff(secrets, w.secretsOfVersions()); diff != "" {
		t.Errorf("Secrets of versions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(objects, w.store.Keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	w.secret("mine")
	w.secret("hello-1") // the copy that a release has
	if _, err := w.Deploy(t.Context(), team, "hello", all[2].ID, jane, true); err != nil {
		t.Errorf("what a release needs cannot be deployed: %v", err)
	}
}

func TestReleaseKeepsSecretAndModules(t *testing.T) {
	w := newWorld(t)
	first := w.old(1)
	w.deploy(first.ID)
	if err := w.versions.Remove(t.Context(), team.ID, "hello", first.ID); err != nil {
		t.Fatal(err)
	}
	second := w.served(module())
	want := []string{"1234/hello/" + first.ID + "/index.js", "1234/hello/" + second.ID + "/index.js", "_versions/1234/hello/" + second.ID + ".json"}
	if diff := cmp.Diff(want, w.store.Keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{first.Script.SecretRef}, w.secretsOfVersions()); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	w.deploy(string(w.releaseOf(1).UID))
	w.asks("the release's template", first.Script, w.deployment().Annotations[api.AnnotationDeployment])
}

func TestSecretOfUploadingVersionStays(t *testing.T) {
	w := newWorld(t)
	w.served(module())
	// Another upload has made its Secret, and not yet its description.
	v, err := version.New("joe")
	if err != nil {
		t.Fatal(err)
	}
	v.Script.ScriptName, v.Script.SecretRef = "hello", "hello-"+v.ID
	if _, err := w.createSecret(t.Context(), team, v, map[string][]byte{"TOKEN": []byte(hush)}); err != nil {
		t.Fatal(err)
	}
	w.served(module())
	if diff := cmp.Diff([]string{v.Script.SecretRef}, w.secretsOfVersions()); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	// One that is old has no version that comes.
	s := w.secret(v.Script.SecretRef)
	if err := w.hub.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.ResourceVersion, s.CreationTimestamp = "", metav1.NewTime(time.Now().Add(-2*uploadGracePeriod))
	w.create(s)
	w.served(module())
	if left := w.secretsOfVersions(); len(left) > 0 {
		t.Errorf("Secrets %q are left", left)
	}
}

func TestFailedCleanupDoesNotFailDeploy(t *testing.T) {
	w := newWorld(t)
	for n := range byte(30) {
		w.old(n)
	}
	w.hub.faults["delete Secret"] = errors.New("boom")
	v := w.served(module(keep("secret_text")))
	if w.listed()[0] != v.ID || len(w.secretsOfVersions()) != 30 {
		t.Errorf("there are the versions %q and %d Secrets", w.listed(), len(w.secretsOfVersions()))
	}
	delete(w.hub.faults, "delete Secret")
	w.deploy(v.ID)
	if n := len(w.secretsOfVersions()); n != 19 {
		t.Errorf("there are %d Secrets", n)
	}
}

func TestDeleteRemovesEverything(t *testing.T) {
	w := newWorld(t)
	w.create(byHand("mine", map[string][]byte{"TOKEN": []byte(hush)}))
	w.served(module(secrets("TOKEN", hush+"1")))
	w.upload(module(secrets("TOKEN", hush+"2")))
	other, err := w.Upload(t.Context(), team, "other", "jane", module(secrets("TOKEN", hush+"3")))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), team, "hello"); err != nil {
		t.Fatal(err)
	}
	if w.deployment() != nil {
		t.Error("the WorkerDeployment is there")
	}
	if diff := cmp.Diff([]string{"1234/other/" + other.ID + "/index.js", "_versions/1234/other/" + other.ID + ".json"}, w.store.Keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{other.Script.SecretRef}, w.secretsOfVersions()); diff != "" {
		t.Errorf("Secrets of versions (-want +got):\n%s", diff)
	}
	w.secret("mine")
	w.secret("hello-1") // the copy that a release has goes with the release
	is(t, w.Delete(t.Context(), team, "hello"), ErrNotFound)
}

func TestVersionOfOtherScriptIsNotFound(t *testing.T) {
	w := newWorld(t)
	v := w.served(module())
	_, err := w.Upload(t.Context(), team, "other", "jane", module())
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Deploy(t.Context(), team, "other", v.ID, jane, false)
	is(t, err, ErrVersionNotFound, v.ID)
	_, err = w.Deploy(t.Context(), Account{ID: "5678", Namespace: "team-b"}, "hello", v.ID, jane, false)
	is(t, err, ErrVersionNotFound, v.ID)
}

func TestMalformedDescriptionIsReported(t *testing.T) {
	w := newWorld(t)
	v := w.served(module())
	w.store.Objects["_versions/1234/hello/"+v.ID+".json"] = "nonsense"
	for name, do := range map[string]func() error{
		"Current": func() error { _, err := w.Current(t.Context(), team, "hello"); return err },
		"Upload":  func() error { _, err := w.Upload(t.Context(), team, "hello", "jane", module()); return err },
		"Deploy":  func() error { _, err := w.Deploy(t.Context(), team, "hello", v.ID, jane, false); return err },
	} {
		if err := do(); err == nil || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), v.ID) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
