// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	before = `{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"permitted":["CAP_SYS_RESOURCE"]},"rlimits":[{"hard":18446744073709551615}]}`
	after  = `{"capabilities":{"bounding":["CAP_CHOWN"],"permitted":[]},"rlimits":[{"hard":18446744073709551615}]}`
)

func TestRewriteTakesAwayWhatIsLacking(t *testing.T) {
	cases := map[string]struct {
		reason       string
		file         string
		args         func(path string) []string
		before, want string
	}{
		"a new container": {
			reason: "its process is in the configuration of the bundle",
			file:   "config.json",
			args: func(path string) []string {
				return []string{"runc", "--root", "/run/runc", "create", "--bundle", filepath.Dir(path), "id"}
			},
			before: `{"ociVersion":"1.0.2","process":` + before + `}`, want: `{"ociVersion":"1.0.2","process":` + after + `}`,
		},
		"a process in one": {
			reason: "exec has a file of its own",
			file:   "process.json",
			args:   func(path string) []string { return []string{"runc", "exec", "--process=" + path, "--detach", "id"} },
			before: before, want: after,
		},
		"no capabilities": {
			reason: "what is not there is not taken away",
			file:   "process.json",
			args:   func(path string) []string { return []string{"runc", "exec", "--process", path, "id"} },
			before: `{"cwd":"/"}`, want: `{"cwd":"/"}`,
		},
		"another command": {
			reason: "it names no file",
			file:   "config.json",
			args:   func(string) []string { return []string{"runc", "state", "id"} },
			before: before, want: before,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tc.file)
			if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := rewrite(tc.args(path), []string{"CAP_SYS_RESOURCE"}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRewriteRefusesWhatIsNoConfiguration(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite([]string{"runc", "create", "--bundle", dir, "id"}, []string{"CAP_SYS_RESOURCE"}); err == nil {
		t.Error("nonsense was taken for a configuration")
	}
	if err := rewrite([]string{"runc", "delete", "--bundle", filepath.Join(dir, "gone"), "id"}, nil); err != nil {
		t.Errorf("the bundle of a container that is gone: %v", err)
	}
}
