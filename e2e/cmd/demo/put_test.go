// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFolderIsReadWithThoseInIt(t *testing.T) {
	got, err := read(fstest.MapFS{
		"index.js":     {Data: []byte("export default {};\n")},
		"add.wasm":     {Data: []byte("\x00asm\x01\x00\x00\x00")},
		"words/hi.txt": {Data: []byte("hi\n")},
	})
	want := []module{{"add.wasm", "\x00asm\x01\x00\x00\x00"}, {"index.js", "export default {};\n"}, {"words/hi.txt", "hi\n"}}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(module{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A script of no files is a name that was mistyped.
func TestAFolderWithoutFilesIsRefused(t *testing.T) {
	if got, err := read(fstest.MapFS{"empty": {Mode: fs.ModeDir}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read %v, %v", got, err)
	}
}
