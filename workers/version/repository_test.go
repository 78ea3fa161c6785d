// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/sets"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/store/storetest"
)

// one is a version of script hello with an ID that is of long ago, and modules of its own.
func one(t *testing.T, n byte) Version {
	t.Helper()
	id := uuid.UUID{0x01, 0x9a, 0xa0, 6: 0x70, 8: 0x80, 15: n}
	if !IsID(id.String()) {
		t.Fatalf("%s is no id", id)
	}
	v := Version{Summary: Summary{ID: id.String(), CreatedOn: createdOn(id), Author: "jane"}, Script: release.Script{
		ScriptName: "hello", ScriptURLs: []string{URL("workers", "1234", "hello", id.String())},
	}}
	v.Summarize("workers", "1234", v.Script)
	return v
}

var module = []File{{Name: "index.js", Type: release.TypeESModule, Content: []byte("export default {}")}}

func save(t *testing.T, r *Repository, versions ...Version) {
	t.Helper()
	for _, v := range versions {
		if err := r.Save(t.Context(), "1234", v, module); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListReturnsNewestFirst(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	first, second := one(t, 1), one(t, 2)
	save(t, r, second, first)
	m.Objects["_versions/1234/hello/notes.json"] = "{}" // somebody else's
	got, err := r.List(t.Context(), "1234", "hello")
	if diff := cmp.Diff([]Summary{second.Summary, first.Summary}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	latest, err := r.Latest(t.Context(), "1234", "hello")
	if err != nil || latest.ID != second.ID {
		t.Errorf("the latest is %+v, %v", latest, err)
	}
}

func TestMissingObjectIsNotFound(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	if _, err := r.Latest(t.Context(), "1234", "hello"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no version: %v", err)
	}
	for _, id := range []string{one(t, 1).ID, "latest", "../../5678/hello/1"} {
		if _, err := r.Load(t.Context(), "1234", "hello", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestIncompleteUploadIsNotListed(t *testing.T) {
	for name, broken := range map[string]string{"a module": "index.js", "the description": ".json"} {
		t.Run(name, func(t *testing.T) {
			m := storetest.NewMemory()
			m.FailPuts = []string{broken}
			r := NewRepository(m, m, "workers")
			if err := r.Save(t.Context(), "1234", one(t, 1), module); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if all, err := r.List(t.Context(), "1234", "hello"); err != nil || len(all) > 0 {
				t.Errorf("there are %+v, %v", all, err)
			}
			m.FailPuts = nil
			if _, err := r.Prune(t.Context(), "1234", "hello", Retention{KeepNewest: 5}); err != nil || len(m.Objects) > 0 {
				t.Errorf("%q are left, %v", m.Keys(), err)
			}
		})
	}
}

func TestPruneKeepsRecentModules(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	v, err := New("jane")
	if err != nil {
		t.Fatal(err)
	}
	m.Objects["1234/hello/"+v.ID+"/index.js"] = "export default {}"
	if _, err := r.Prune(t.Context(), "1234", "hello", Retention{}); err != nil || len(m.Objects) != 1 {
		t.Errorf("%q are left, %v", m.Keys(), err)
	}
}

func TestPruneRemovesUnneededVersions(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	// Version 4 is version 1 with other secrets: it has the same modules.
	fourth := one(t, 4)
	fourth.Script.ScriptURLs = one(t, 1).Script.ScriptURLs
	save(t, r, one(t, 1), one(t, 2), one(t, 3))
	if err := r.Save(t.Context(), "1234", fourth, nil); err != nil {
		t.Fatal(err)
	}
	kept, err := r.Prune(t.Context(), "1234", "hello", Retention{KeepNewest: 1, KeepVersions: func([]Summary) sets.Set[string] { return sets.New(one(t, 2).ID) }})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, v := range kept {
		ids = append(ids, v.ID)
	}
	if diff := cmp.Diff([]string{fourth.ID, one(t, 2).ID}, ids); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	want := []string{
		"1234/hello/" + one(t, 1).ID + "/index.js", "1234/hello/" + one(t, 2).ID + "/index.js",
		"_versions/1234/hello/" + one(t, 2).ID + ".json", "_versions/1234/hello/" + fourth.ID + ".json",
	}
	if diff := cmp.Diff(want, m.Keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestRemoveAllLeavesNothing(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	save(t, r, one(t, 1), one(t, 2))
	m.Objects["1234/other/1/index.js"] = "export default {}"
	if err := r.RemoveAll(t.Context(), "1234", "hello"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1234/other/1/index.js"}, m.Keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// TestDescriptionsAreOutsideAccountPrefix plants one where the account's own users may write.
func TestDescriptionsAreOutsideAccountPrefix(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	honest, planted := one(t, 1), one(t, 2)
	save(t, r, honest)
	planted.Script.SecretRef = "database"
	raw, err := encode(planted)
	if err != nil {
		t.Fatal(err)
	}
	for key := range m.Objects {
		if below := strings.HasPrefix(key, "1234/"); below == strings.HasSuffix(key, ".json") {
			t.Errorf("there is %s", key)
		}
	}
	for _, key := range []string{".json", "/summary.json", ""} {
		m.Objects["1234/hello/"+planted.ID+key] = string(raw)
		m.Objects["1234/_versions/1234/hello/"+planted.ID+key] = string(raw)
	}
	if _, err := r.Load(t.Context(), "1234", "hello", planted.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("it is read: %v", err)
	}
	latest, err := r.Latest(t.Context(), "1234", "hello")
	if err != nil || latest.ID != honest.ID {
		t.Errorf("the latest is %+v, %v", latest, err)
	}
	if all, err := r.List(t.Context(), "1234", "hello"); err != nil || len(all) != 1 {
		t.Errorf("there are %+v, %v", all, err)
	}
}

func TestLoadRejectsForeignDescription(t *testing.T) {
	id := one(t, 1).ID
	cases := map[string]struct {
		reason, says string
		change       func(*Version)
		raw          string
	}{
		"another version":       {reason: "it would be deployed by another name", says: "the description of version", change: func(v *Version) { v.ID = one(t, 2).ID }},
		"another script":        {reason: "it would take that one's place", says: `a version of script "other"`, change: func(v *Version) { v.Script.ScriptName = "other" }},
		"another account":       {reason: "the modules are somebody else's", says: "is not below 1234/", change: func(v *Version) { v.Script.ScriptURLs = []string{"s3://workers/5678/hello/1"} }},
		"another account, also": {reason: "the field has two spellings", says: "is not below 1234/", change: func(v *Version) { v.Script.ScriptsURLs = []string{"5678/hello/1"} }},
		"another bucket":        {reason: "the modules are not read there", says: "bucket", change: func(v *Version) { v.Script.ScriptURLs = []string{"s3://theirs/1234/hello/1"} }},
		"nonsense":              {reason: "nobody wrote it", says: "is no description", raw: "nonsense"},
		"a summary alone":       {reason: "it is half a description", says: "is no description", raw: `{"id":"` + id + `"}` + "\n"},
		"too much":              {reason: "it is more than was ever written", says: "too large", raw: `{"id":"` + id + `"}` + "\n" + strings.Repeat(" ", maxDescription)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := storetest.NewMemory()
			if tc.change != nil {
				v := one(t, 1)
				tc.change(&v)
				raw, err := encode(v)
				if err != nil {
					t.Fatal(err)
				}
				tc.raw = string(raw)
			}
			m.Objects["_versions/1234/hello/"+id+".json"] = tc.raw
			_, err := NewRepository(m, m, "workers").Load(t.Context(), "1234", "hello", id)
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), id) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
		})
	}
}

// TestListReadsOnlySummaries: with what lists say, twenty versions are no more to read
// than one is to write.
func TestListReadsOnlySummaries(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	var want []Summary
	for n := range byte(20) {
		v := one(t, n)
		v.Message, v.Tag = "as discussed", "v1"
		for i := range 14 {
			v.Script.Bindings = append(v.Script.Bindings, release.Binding{Name: fmt.Sprintf("B%d", i), Type: release.BindingPlainText, Text: strings.Repeat("x", 64<<10)})
		}
		v.Summarize("workers", "1234", v.Script)
		save(t, r, v)
		want = append(want, v.Summary)
	}
	slices.Reverse(want)
	got, err := r.List(t.Context(), "1234", "hello")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if m.ReadBytes > 20*maxSummary {
		t.Errorf("%d bytes are read for 20 versions", m.ReadBytes)
	}
}

func TestListIsLimitedToNewest(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	for n := range byte(maxVersions + 20) {
		if err := r.Save(t.Context(), "1234", one(t, n), nil); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.List(t.Context(), "1234", "hello")
	if err != nil || len(all) != maxVersions || all[0].ID != one(t, maxVersions+19).ID || all[maxVersions-1].ID != one(t, 20).ID {
		t.Errorf("%d are listed, %v", len(all), err)
	}
}

func TestSaveRejectsLargeVersions(t *testing.T) {
	for name, change := range map[string]func(*Version){
		"a summary":  func(v *Version) { v.Author = strings.Repeat("x", maxSummary) },
		"a template": func(v *Version) { v.Script.MainModule = strings.Repeat("x", maxDescription) },
	} {
		m := storetest.NewMemory()
		v := one(t, 1)
		change(&v)
		if err := NewRepository(m, m, "workers").Save(t.Context(), "1234", v, module); !errors.Is(err, store.ErrTooLarge) || len(m.Objects) > 0 {
			t.Errorf("%s: %v, and there is %q", name, err, m.Keys())
		}
	}
}

func TestLoadReportsMalformedDescription(t *testing.T) {
	m := storetest.NewMemory()
	r := NewRepository(m, m, "workers")
	m.Objects["_versions/1234/hello/"+one(t, 1).ID+".json"] = "nonsense"
	_, err := r.List(t.Context(), "1234", "hello")
	if syntax := (*json.SyntaxError)(nil); !errors.As(err, &syntax) || !strings.Contains(err.Error(), one(t, 1).ID) {
		t.Errorf("got %v", err)
	}
}
