// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

func TestAnImageIsWrittenWhenItIsAnother(t *testing.T) {
	dir := t.TempDir()
	archive, program := filepath.Join(dir, "images", "one.tar"), filepath.Join(dir, "program")
	spec := image.Spec{Ref: "spokelet.io/test/one:v1", Files: []image.File{{Path: "/program", Source: program}}, Entrypoint: []string{"/program"}}
	content := func(text string) {
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content("one")
	old := time.Unix(1e9, 0)
	for _, step := range []struct {
		reason  string
		change  func()
		written bool
	}{
		{"it is not there", func() {}, true},
		{"nothing is another", func() { content("one") }, false},
		{"the program is another", func() { content("two") }, true},
		{"the name is another", func() { spec.Ref = "spokelet.io/test/one:v2" }, true},
		{"the command is another", func() { spec.Entrypoint = []string{"/program", "serve"} }, true},
		{"the archive was removed", func() { _ = os.Remove(archive) }, true},
		{"the record was removed", func() { _ = os.Remove(archive + ".sum") }, true},
		{"nothing is another, again", func() {}, false},
	} {
		step.change()
		if err := writeImage(archive, spec); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		after, err := os.Stat(archive)
		if err != nil {
			t.Fatal(err)
		}
		if written := !after.ModTime().Equal(old); written != step.written {
			t.Errorf("%s: written: %t, want %t", step.reason, written, step.written)
		}
		if err := os.Chtimes(archive, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnImageOfAProgramThatIsMissingIsAnError(t *testing.T) {
	spec := image.Spec{Ref: "spokelet.io/test/one:v1", Files: []image.File{{Path: "/program", Source: filepath.Join(t.TempDir(), "none")}}}
	if err := writeImage(filepath.Join(t.TempDir(), "one.tar"), spec); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
}

func TestAFileThatIsHeldIsHeldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "program")
	release, err := hold(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(filepath.Join(filepath.Dir(path), ".program.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	attempt := func() error { return syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	if err := attempt(); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("another process gets %v, want %v", err, syscall.EWOULDBLOCK)
	}
	release()
	if err := attempt(); err != nil {
		t.Errorf("it is held after its release: %v", err)
	}
}

func TestAnImageIsBuiltOnceInAProcess(t *testing.T) {
	built := 0
	build := func() (Image, error) {
		built++
		return Image{Ref: "one"}, nil
	}
	all := &images{made: map[string]func() (Image, error){}}
	for range 2 {
		if got, err := all.once("one", build); err != nil || got.Ref != "one" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if built != 1 {
		t.Errorf("it was built %d times", built)
	}
}
