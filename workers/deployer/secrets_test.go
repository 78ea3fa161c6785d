// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/workers/api"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/version"
)

func TestSetSecretsCreatesVersion(t *testing.T) {
	cases := map[string]struct {
		reason string
		change map[string]*string
		want   map[string]string
		same   bool
	}{
		"one is added": {
			reason: "the others stay",
			change: map[string]*string{"KEY": new(hush + "2")}, want: map[string]string{"TOKEN": hush + "1", "KEY": hush + "2"},
		},
		"one is set": {
			reason: "it has one value",
			change: map[string]*string{"TOKEN": new(hush + "2")}, want: map[string]string{"TOKEN": hush + "2"},
		},
		"one is set and one is deleted": {
			reason: "it is one version, not two",
			change: map[string]*string{"TOKEN": nil, "KEY": new(hush + "2")}, want: map[string]string{"KEY": hush + "2"},
		},
		"the last one is deleted": {
			reason: "no Secret is named then",
			change: map[string]*string{"TOKEN": nil}, want: nil,
		},
		"the same value": {
			reason: "nothing is to be built or written",
			change: map[string]*string{"TOKEN": new(hush + "1")}, same: true,
		},
		"one that is not there is deleted": {
			reason: "nothing is to be built or written",
			change: map[string]*string{"KEY": nil}, same: true,
		},
		"nothing": {reason: "nothing is to be built or written", same: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.served(module(secrets("TOKEN", hush+"1"), bindings(text("GREETING", "hello"))))
			w.hub.writes, w.store.Puts = nil, 0
			if err := w.SetSecrets(t.Context(), team, "hello", tc.change, jane); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if tc.same {
				if len(w.hub.writes) > 0 || w.store.Puts > 0 {
					t.Errorf("%s: the deployer writes %q to the hub, and %d objects", tc.reason, w.hub.writes, w.store.Puts)
				}
				return
			}
			v, err := w.Current(t.Context(), team, "hello")
			if err != nil || v.ID == first.ID || v.Author != jane.Name || v.Message != jane.Message {
				t.Fatalf("%s: %+v is deployed, %v", tc.reason, v, err)
			}
			want := first.Script
			want.SecretRef = "hello-" + v.ID
			if tc.want == nil {
				want.SecretRef = ""
			}
			w.asks(tc.reason, want, w.deployment().Annotations[api.AnnotationDeployment])
			if tc.want != nil {
				if diff := cmp.Diff(tc.want, w.values(want.SecretRef)); diff != "" {
					t.Errorf("%s: secrets (-want +got):\n%s", tc.reason, diff)
				}
			}
			var names []string
			for name := range tc.want {
				names = append(names, name)
			}
			slices.Sort(names)
			got, err := w.SecretNames(t.Context(), team, "hello")
			if diff := cmp.Diff(names, got); err != nil || diff != "" {
				t.Errorf("%s: names, %v (-want +got):\n%s", tc.reason, err, diff)
			}
			if diff := cmp.Diff(map[string]string{"TOKEN": hush + "1"}, w.values(first.Script.SecretRef)); diff != "" {
				t.Errorf("%s: secrets of the version before (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{v.ID, first.ID}, w.order()); diff != "" {
				t.Errorf("%s: deployments (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRejectedSecretIsRolledBack(t *testing.T) {
	w := newWorld(t)
	first := w.served(module(secrets("TOKEN", hush+"1")))
	annotation := w.deployment().Annotations[api.AnnotationDeployment]
	w.hub.operator.rejects = syntaxError
	err := w.SetSecrets(t.Context(), team, "hello", map[string]*string{"TOKEN": new(hush + "2")}, jane)
	is(t, err, ErrRejected, syntaxError)
	w.asks("taken back", first.Script, annotation)
}

func TestManualSecretIsNotChanged(t *testing.T) {
	w := newWorld(t)
	w.create(byHand("mine", map[string][]byte{"TOKEN": []byte(hush + "1")}))
	w.kubectl(releasev1alpha1.Script{
		ScriptName: "hello", CompatibilityDate: "2026-01-15", SecretRef: "mine", ScriptURLs: []string{"s3://workers/1234/mine"},
	})
	names, err := w.SecretNames(t.Context(), team, "hello")
	if diff := cmp.Diff([]string{"TOKEN"}, names); err != nil || diff != "" {
		t.Errorf("names, %v (-want +got):\n%s", err, diff)
	}
	for name, change := range map[string]map[string]*string{
		"set":    {"TOKEN": new(hush + "2")},
		"delete": {"TOKEN": nil},
	} {
		t.Run(name, func(t *testing.T) {
			w.hub.writes = nil
			is(t, w.SetSecrets(t.Context(), team, "hello", change, jane), ErrConflict, "Secret mine", "kubectl")
			_, err := w.AddVersion(t.Context(), team, "hello", change, jane)
			is(t, err, ErrConflict, "Secret mine", "kubectl")
			if diff := cmp.Diff(map[string]string{"TOKEN": hush + "1"}, w.values("mine")); diff != "" || len(w.hub.writes) > 0 || len(w.store.Keys()) > 0 {
				t.Errorf("written: %q, %q (-want +got):\n%s", w.hub.writes, w.store.Keys(), diff)
			}
		})
	}
}

func TestUploadKeepsManualSecret(t *testing.T) {
	w := newWorld(t)
	w.create(byHand("mine", map[string][]byte{"TOKEN": []byte(hush + "1")}))
	w.kubectl(releasev1alpha1.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", SecretRef: "mine"})
	v := w.served(module(keep("secret_text")))
	if v.Script.SecretRef != "mine" || len(w.secret("mine").OwnerReferences) > 0 {
		t.Errorf("secretRef is %q, and the Secret has the owners %+v", v.Script.SecretRef, w.secret("mine").OwnerReferences)
	}
	other := w.served(module(keep("secret_text"), secrets("KEY", hush+"2")))
	if diff := cmp.Diff(map[string]string{"TOKEN": hush + "1", "KEY": hush + "2"}, w.values("hello-"+other.ID)); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}

func TestSetSecretsFailsWhenLatestIsNotDeployed(t *testing.T) {
	w := newWorld(t)
	first := w.served(module())
	second := w.upload(module())
	change := map[string]*string{"TOKEN": new(hush + "1")}
	is(t, w.SetSecrets(t.Context(), team, "hello", change, jane), ErrNotLatest, first.ID, second.ID)
	if diff := cmp.Diff([]string{second.ID, first.ID}, w.listed()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	w.deploy(second.ID)
	if err := w.SetSecrets(t.Context(), team, "hello", change, jane); err != nil {
		t.Error(err)
	}
}

func TestDeployRefusesOtherSecretsWithoutForce(t *testing.T) {
	w := newWorld(t)
	first := w.served(module(secrets("TOKEN", hush+"1")))
	second := w.upload(module(bindings(text("GREETING", "hello")), keep("secret_text")))
	annotation := w.deployment().Annotations[api.AnnotationDeployment]
	v, err := w.AddVersion(t.Context(), team, "hello", map[string]*string{"KEY": new(hush + "2")}, jane)
	if err != nil {
		t.Fatal(err)
	}
	w.asks("not deployed", first.Script, annotation)
	want := second.Script
	want.SecretRef = "hello-" + v.ID
	if diff := cmp.Diff(want, v.Script); diff != "" {
		t.Errorf("it is not the latest version with another Secret (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{v.ID, second.ID, first.ID}, w.listed()); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"TOKEN": hush + "1", "KEY": hush + "2"}, w.values(want.SecretRef)); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	same, err := w.AddVersion(t.Context(), team, "hello", map[string]*string{"KEY": new(hush + "2")}, jane)
	if err != nil || same.ID != v.ID {
		t.Errorf("the same secrets again are version %s, %v", same.ID, err)
	}
}

func TestMissingSecretIsReported(t *testing.T) {
	w := newWorld(t)
	v := w.served(module(secrets("TOKEN", hush+"1")))
	if err := w.hub.client.Delete(t.Context(), w.secret(v.Script.SecretRef)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Upload(t.Context(), team, "hello", "jane", module(keep("secret_text")))
	is(t, err, ErrInvalid, "there is no Secret "+v.Script.SecretRef)
	is(t, w.SetSecrets(t.Context(), team, "hello", map[string]*string{"KEY": new(hush + "1")}, jane), ErrInvalid, v.Script.SecretRef)
	if len(w.listed()) != 1 {
		t.Errorf("there are %q", w.listed())
	}
}

func TestDeployFailsWithoutSecret(t *testing.T) {
	w := newWorld(t)
	first := w.upload(module(secrets("TOKEN", hush+"1")))
	second := w.served(module())
	annotation := w.deployment().Annotations[api.AnnotationDeployment]
	if err := w.hub.client.Delete(t.Context(), w.secret(first.Script.SecretRef)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Deploy(t.Context(), team, "hello", first.ID, jane, true)
	is(t, err, ErrInvalid, "there is no Secret "+first.Script.SecretRef)
	w.asks("taken back", second.Script, annotation)
}

func TestRollbackRestoresSecrets(t *testing.T) {
	cases := map[string]struct {
		reason      string
		then, now   []string
		changed     string
		twoVersions bool
	}{
		"other values": {
			reason:  "exactly those are named that differ, in order",
			then:    []string{"A", hush + "1", "B", hush + "2", "C", hush + "3", "D", hush + "3", "E", hush + "3", "F", hush + "3"},
			now:     []string{"C", hush + "4", "B", hush + "2", "A", hush + "5", "F", hush + "4", "E", hush + "4", "D", hush + "4"},
			changed: "A, C, D, E, F",
		},
		"one more and one less": {
			reason: "a secret that is not there then or now has changed",
			then:   []string{"ALONE", hush + "1", "B", hush + "2"}, now: []string{"ZERO", hush + "1", "B", hush + "2"},
			changed: "ALONE, ZERO",
		},
		"none then":         {reason: "it would be gone", now: []string{"A", hush + "1"}, changed: "A"},
		"none now":          {reason: "it would be back", then: []string{"A", hush + "1"}, changed: "A"},
		"the same values":   {reason: "nothing is lost", then: []string{"A", hush + "1"}, now: []string{"A", hush + "1"}},
		"never had secrets": {reason: "nothing is lost"},
		"the same values in another Secret": {
			reason: "values are compared, not names", then: []string{"A", hush + "1"}, now: []string{"A", hush + "1"}, twoVersions: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.served(module(secrets(tc.then...)))
			tick()
			if tc.twoVersions {
				w.served(module())
			}
			second := w.served(module(secrets(tc.now...)))
			if tc.twoVersions == (first.Script.SecretRef == second.Script.SecretRef) && len(tc.then) > 0 && tc.changed == "" {
				t.Fatalf("the Secrets are %s and %s", first.Script.SecretRef, second.Script.SecretRef)
			}
			_, err := w.Deploy(t.Context(), team, "hello", first.ID, jane, false)
			if tc.changed != "" {
				changed, ok := errors.AsType[*SecretsChangedError](err)
				if !ok || strings.Join(changed.Names, ", ") != tc.changed || err.Error() != "The following secrets have changed: "+tc.changed {
					t.Fatalf("%s: got %v", tc.reason, err)
				}
				w.asks(tc.reason, second.Script, w.deployment().Annotations[api.AnnotationDeployment])
				_, err = w.Deploy(t.Context(), team, "hello", first.ID, jane, true)
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			w.asks(tc.reason, first.Script, w.deployment().Annotations[api.AnnotationDeployment])
			if order := w.order(); order[0] != first.ID || order[1] != second.ID {
				t.Errorf("%s: the order is %q, want %s before %s", tc.reason, order, first.ID, second.ID)
			}
			// What is newer than what is deployed is no way back.
			if _, err := w.Deploy(t.Context(), team, "hello", second.ID, jane, false); err != nil {
				t.Errorf("%s: forward again: %v", tc.reason, err)
			}
		})
	}
}

func TestDeployedVersionWinsOverEqualTemplate(t *testing.T) {
	w := newWorld(t)
	first := w.served(module())
	for _, v := range []*string{new(hush + "1"), nil} {
		if err := w.SetSecrets(t.Context(), team, "hello", map[string]*string{"TOKEN": v}, jane); err != nil {
			t.Fatal(err)
		}
	}
	third := w.listed()[0]
	for _, id := range []string{first.ID, third} {
		d := w.deploy(id)
		v, err := w.Current(t.Context(), team, "hello")
		if err != nil || v.ID != id {
			t.Errorf("%s is deployed, %v, want %s", v.ID, err, id)
		}
		all, err := w.Deployments(t.Context(), team, "hello")
		if err != nil || !cmp.Equal(all[0], d) {
			t.Errorf("the first deployment is %+v, %v, want %+v", all[0], err, d)
		}
	}
}

// TestErrorsContainNoSecret has everything fail that writes or reads one.
func TestErrorsContainNoSecret(t *testing.T) {
	boom := errors.New("boom")
	for _, what := range []string{"create Secret", "get Secret", "patch Secret", "create WorkerDeployment", "list WorkerDeployment", "store"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			v := w.upload(module(secrets("TOKEN", hush+"1")))
			target := boom
			w.hub.faults[what] = boom
			if what == "store" {
				w.store.FailPuts, target = []string{"/"}, store.ErrUnavailable
			}
			_, first := w.Upload(t.Context(), team, "hello", "jane", module(secrets("TOKEN", hush+"2")))
			_, second := w.Deploy(t.Context(), team, "hello", v.ID, jane, false)
			_, third := w.AddVersion(t.Context(), team, "hello", map[string]*string{"TOKEN": new(hush + "3")}, jane)
			is(t, errors.Join(first, second, third), target)
		})
	}
}

func TestDescriptionContainsOnlySecretNames(t *testing.T) {
	w := newWorld(t)
	v := w.served(module(secrets("TOKEN", hush+"1")))
	if err := w.SetSecrets(t.Context(), team, "hello", map[string]*string{"KEY": new(hush + "2")}, jane); err != nil {
		t.Fatal(err)
	}
	all, err := w.versions.List(t.Context(), team.ID, "hello")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"KEY", "TOKEN"}, {"TOKEN"}}
	var got [][]string
	for _, s := range all {
		full, err := w.Version(t.Context(), team, "hello", s.ID)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, full.SecretNames)
	}
	if diff := cmp.Diff(want, got); diff != "" || !version.IsID(v.ID) {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for key, content := range w.store.Objects {
		if strings.Contains(content, hush) {
			t.Errorf("object %s has the value of a secret", key)
		}
	}
}
