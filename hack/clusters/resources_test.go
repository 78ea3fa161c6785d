// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

func TestANameIsOfOneSetOfTheMachine(t *testing.T) {
	if lacking := lacksForNetns(); lacking != "" {
		t.Skipf("changes settings of the kernel, which needs %s", lacking)
	}
	made := func(root string) *resources {
		s := state{Name: "clusters-name", Provider: Netns}
		if err := s.save(root); err != nil {
			t.Fatal(err)
		}
		return &resources{set: &Set{config: Config{Name: s.Name, StateDir: root}, state: s}}
	}
	root := t.TempDir()
	first, second := made(filepath.Join(root, "first")), made(filepath.Join(root, "second"))
	none := func() []string { return nil }
	t.Cleanup(func() {
		if err := first.clear(context.WithoutCancel(t.Context()), none); err != nil {
			t.Error(err)
		}
	})
	if err := first.tune(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, err := process.Start(process.Spec{
		Name: "one", Path: "/bin/sleep", Args: []string{"3600"}, Mark: first.dir(), Log: filepath.Join(root, "log"),
	}, filepath.Join(root, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.tune(t.Context()); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), first.dir()) {
		t.Errorf("a second set of the name: error %v, want %v with the first one's directory", err, ErrConfig)
	}
	if err := second.clear(t.Context(), none); err != nil || !running.Alive() {
		t.Errorf("removing it: %v; what the first one runs lives: %t", err, running.Alive())
	}
	// Whoever deletes a set's files alone must not keep the name for ever.
	if err := os.RemoveAll(first.dir()); err != nil {
		t.Fatal(err)
	}
	if err := second.tune(t.Context()); err != nil {
		t.Errorf("when the first one's files are gone: %v", err)
	}
	if err := errors.Join(second.clear(t.Context(), none), running.Stop(t.Context(), 0)); err != nil {
		t.Error(err)
	}
}
