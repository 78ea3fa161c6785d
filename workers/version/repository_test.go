// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/sets"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/store"
)

// memory is an object store that is a map.
type memory struct {
	mu      sync.Mutex
	objects map[string]string
	// broken are keys that cannot be written.
	broken sets.Set[string]
}

func newMemory() *memory { return &memory{objects: map[string]string{}, broken: sets.New[string]()} }

func (m *memory) Put(ctx context.Context, _, key, _ string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for part := range m.broken {
		if strings.Contains(key, part) {
			return store.ErrUnavailable
		}
	}
	m.objects[key] = string(content)
	return nil
}

func (m *memory) Read(_ context.Context, _, key string, _ int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	content, ok := m.objects[key]
	if !ok {
		return nil, store.ErrMissing
	}
	return []byte(content), nil
}

func (m *memory) Names(_ context.Context, _, folder string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := sets.New[string]()
	for key := range m.objects {
		if rest, below := strings.CutPrefix(key, folder+"/"); below {
			name, _, deeper := strings.Cut(rest, "/")
			if deeper {
				name += "/"
			}
			names.Insert(name)
		}
	}
	return sets.List(names), nil
}

func (m *memory) Delete(_ context.Context, _ string, keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.objects, key)
	}
	return nil
}

func (m *memory) DeleteFolder(_ context.Context, _, folder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.objects, func(key, _ string) bool { return strings.HasPrefix(key, folder+"/") })
	return nil
}

func (m *memory) keys() []string { return slices.Sorted(maps.Keys(m.objects)) }

// one is a version of script hello with an ID that is of long ago, and modules of its own.
func one(t *testing.T, n byte) Version {
	t.Helper()
	id := uuid.UUID{0x01, 0x9a, 0xa0, 6: 0x70, 8: 0x80, 15: n}
	if !IsID(id.String()) {
		t.Fatalf("%s is no id", id)
	}
	return Version{ID: id.String(), CreatedOn: createdOn(id), Author: "jane", Script: release.Script{
		ScriptName: "hello", ScriptURLs: []string{URL("workers", "1234", "hello", id.String())},
	}}
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

func TestVersionsAreListedTheNewestFirst(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	first, second := one(t, 1), one(t, 2)
	save(t, r, second, first)
	m.objects["1234/hello/notes.json"] = "{}" // somebody else's
	got, err := r.List(t.Context(), "1234", "hello")
	if diff := cmp.Diff([]Version{second, first}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	latest, err := r.Latest(t.Context(), "1234", "hello")
	if err != nil || latest.ID != second.ID {
		t.Errorf("the latest is %+v, %v", latest, err)
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	if _, err := r.Latest(t.Context(), "1234", "hello"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no version: %v", err)
	}
	for _, id := range []string{one(t, 1).ID, "latest", "../../5678/hello/1"} {
		if _, err := r.Load(t.Context(), "1234", "hello", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestAHalfUploadIsNoVersion(t *testing.T) {
	for name, broken := range map[string]string{"a module": "index.js", "the description": ".json"} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.broken.Insert(broken)
			r := NewRepository(m, m)
			if err := r.Save(t.Context(), "1234", one(t, 1), module); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if all, err := r.List(t.Context(), "1234", "hello"); err != nil || len(all) > 0 {
				t.Errorf("there are %+v, %v", all, err)
			}
			m.broken.Clear()
			if _, err := r.Prune(t.Context(), "1234", "hello", "workers", Needs{Newest: 5}); err != nil || len(m.objects) > 0 {
				t.Errorf("%q are left, %v", m.keys(), err)
			}
		})
	}
}

func TestModulesThatAreBeingUploadedStay(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	v, err := New("jane")
	if err != nil {
		t.Fatal(err)
	}
	m.objects["1234/hello/"+v.ID+"/index.js"] = "export default {}"
	if _, err := r.Prune(t.Context(), "1234", "hello", "workers", Needs{}); err != nil || len(m.objects) != 1 {
		t.Errorf("%q are left, %v", m.keys(), err)
	}
}

func TestOldVersionsGoUnlessTheyAreNeeded(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	// Version 4 is version 1 with other secrets: it has the same modules.
	fourth := one(t, 4)
	fourth.Script.ScriptURLs = one(t, 1).Script.ScriptURLs
	save(t, r, one(t, 1), one(t, 2), one(t, 3))
	if err := r.Save(t.Context(), "1234", fourth, nil); err != nil {
		t.Fatal(err)
	}
	kept, err := r.Prune(t.Context(), "1234", "hello", "workers", Needs{Newest: 1, Versions: func([]Version) sets.Set[string] { return sets.New(one(t, 2).ID) }})
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
		"1234/hello/" + one(t, 1).ID + "/index.js", "1234/hello/" + one(t, 2).ID + ".json",
		"1234/hello/" + one(t, 2).ID + "/index.js", "1234/hello/" + fourth.ID + ".json",
	}
	if diff := cmp.Diff(want, m.keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestARemovedScriptLeavesNothing(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	save(t, r, one(t, 1), one(t, 2))
	m.objects["1234/other/1/index.js"] = "export default {}"
	if err := r.RemoveAll(t.Context(), "1234", "hello"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1234/other/1/index.js"}, m.keys()); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestADescriptionThatIsNoneIsNamed(t *testing.T) {
	m := newMemory()
	r := NewRepository(m, m)
	m.objects["1234/hello/"+one(t, 1).ID+".json"] = "nonsense"
	_, err := r.List(t.Context(), "1234", "hello")
	if syntax := (*json.SyntaxError)(nil); !errors.As(err, &syntax) || !strings.Contains(err.Error(), one(t, 1).ID) {
		t.Errorf("got %v", err)
	}
}
