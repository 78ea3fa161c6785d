// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spec(t *testing.T) image.Spec {
	t.Helper()
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	return image.Spec{
		Ref: "spokelet.io/test/one:v1",
		Files: []image.File{
			{Path: "/usr/bin/program", Source: source},
			{Path: "/bin", Link: "usr/bin"},
			{Path: "/tmp", Mode: 0o777 | os.ModeSticky},
		},
		Entrypoint:   []string{"/usr/bin/program"},
		Env:          []string{"PATH=/bin"},
		User:         "65532",
		Architecture: "amd64",
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	spec := spec(t)
	source := spec.Files[0].Source
	var written [][]byte
	for _, name := range []string{"first.tar", "second.tar"} {
		path := filepath.Join(dir, name)
		if err := image.Write(path, spec); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, content)
		// Neither the day nor the order of the files may be in the result.
		if err := os.Chtimes(source, time.Now(), time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(spec.Files)
	}
	if !bytes.Equal(written[0], written[1]) {
		t.Error("the same files gave two different archives")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWriteGivesWhatWasAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	spec := spec(t)
	if err := image.Write(path, spec); err != nil {
		t.Fatal(err)
	}
	got, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := got.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec.Entrypoint, config.Config.Entrypoint); diff != "" {
		t.Errorf("entrypoint (-want +got):\n%s", diff)
	}
	if config.Config.User != "65532" || config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("user %q on %s/%s", config.Config.User, config.OS, config.Architecture)
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	compressed, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer compressed.Close()
	type entry struct {
		Name, Link, Content string
		Mode                int64
	}
	var entries []entry
	unzipped, err := gzip.NewReader(compressed)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s is dated %s", header.Name, header.ModTime)
		}
		entries = append(entries, entry{header.Name, header.Linkname, string(content), header.Mode})
	}
	want := []entry{
		{"bin", "usr/bin", "", 0o777},
		{"tmp/", "", "", 0o1777},
		{"usr/", "", "", 0o755},
		{"usr/bin/", "", "", 0o755},
		{"usr/bin/program", "", "a program", 0o555},
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestWriteRefusesWhatMakesNoImage(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   image.Spec
		want   error
	}{
		"a digest as reference": {
			reason: "an archive is loaded under a tag",
			spec:   image.Spec{Ref: "spokelet.io/x@sha256:00"},
			want:   image.ErrSpec,
		},
		"a relative path": {
			reason: "it would depend on nothing the reader can see",
			spec:   image.Spec{Ref: "test/x:y", Files: []image.File{{Path: "bin/x"}}},
			want:   image.ErrSpec,
		},
		"a path that climbs": {
			reason: "unpacking it would leave the root",
			spec:   image.Spec{Ref: "test/x:y", Files: []image.File{{Path: "/../x"}}},
			want:   image.ErrSpec,
		},
		"one path twice": {
			reason: "which one wins would be chance",
			spec:   image.Spec{Ref: "test/x:y", Files: []image.File{{Path: "/a"}, {Path: "/a"}}},
			want:   image.ErrSpec,
		},
		"a copy that is also a link": {
			reason: "it cannot be both",
			spec:   image.Spec{Ref: "test/x:y", Files: []image.File{{Path: "/a", Source: "/b", Link: "/c"}}},
			want:   image.ErrSpec,
		},
		"a source that does not exist": {
			reason: "the error of the file system is kept",
			spec:   image.Spec{Ref: "test/x:y", Files: []image.File{{Path: "/a", Source: "/nonexistent/file"}}},
			want:   os.ErrNotExist,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "image.tar")
			if err := image.Write(out, tc.spec); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v: %s", err, tc.want, tc.reason)
			}
			if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the archive is there after an error: %v", err)
			}
		})
	}
}

func TestTreeDescribesADirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "usr", "sbin"), 0o750); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "usr", "sbin", "program")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("program", filepath.Join(dir, "usr", "sbin", "alias")); err != nil {
		t.Fatal(err)
	}
	got, err := image.Tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []image.File{
		{Path: "/usr"},
		{Path: "/usr/sbin"},
		{Path: "/usr/sbin/alias", Link: "program"},
		{Path: "/usr/sbin/program", Source: program, Mode: 0o700},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := image.Tree(dir); !errors.Is(err, image.ErrSpec) {
		t.Errorf("a pipe: error %v, want %v", err, image.ErrSpec)
	}
}
