// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/hack/clusters"
	"github.com/spokelet/spokelet/hack/clusters/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the command line and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(&out, io.Discard)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsOnExistingClusters(t *testing.T) {
	dir := t.TempDir()
	hub := filepath.Join(dir, "hub")
	if err := os.WriteFile(hub, []byte("content of the file"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(clusters.StateEnv, dir)
	t.Setenv(clusters.HubKubeconfigEnv, hub)
	t.Setenv(clusters.SpokeKubeconfigsEnv, "/one"+string(os.PathListSeparator)+"/two")
	cases := map[string]struct {
		reason string
		args   []string
		want   string
		err    error
	}{
		"the path of a kubeconfig": {
			reason: "for KUBECONFIG=",
			args:   []string{"kubeconfig", "spoke2"}, want: "/two\n",
		},
		"the content of a kubeconfig": {
			reason: "for a pipe",
			args:   []string{"kubeconfig", "hub", "--content"}, want: "content of the file",
		},
		"a cluster that is not there": {
			reason: "printing another one's would be worse than nothing",
			args:   []string{"kubeconfig", "spoke3"}, err: clusters.ErrNotFound,
		},
		"a cut": {
			reason: "clusters that are not ours are not broken",
			args:   []string{"cut", "spoke1"}, err: clusters.ErrUnsupported,
		},
		"a bad name": {
			reason: "names are checked before anything is looked for",
			args:   []string{"status", "--name", "No Name"}, err: clusters.ErrConfig,
		},
		"neither start nor stop": {
			reason: "guessing would stop a server",
			args:   []string{"apiserver", "hub", "restart"}, err: clusters.ErrConfig,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, tc.args...)
			if !errors.Is(err, tc.err) || got != tc.want {
				t.Errorf("%q, %v; want %q, %v: %s", got, err, tc.want, tc.err, tc.reason)
			}
		})
	}
}

func TestStatusListsEveryCluster(t *testing.T) {
	t.Setenv(clusters.HubKubeconfigEnv, "/hub")
	t.Setenv(clusters.SpokeKubeconfigsEnv, "/one")
	t.Setenv(clusters.StateEnv, t.TempDir())
	got, err := run(t, "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"existing", "/hub", "spoke1", "/one"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestDownOfNothingIsNoError(t *testing.T) {
	t.Setenv(clusters.StateEnv, filepath.Join(t.TempDir(), "state"))
	if _, err := run(t, "down", "--name", "absent"); err != nil {
		t.Error(err)
	}
}

func TestImageWritesWhatTheFlagsSay(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "image.tar")
	_, err := run(t, "image", "--ref", "spokelet.io/hub:dev", "--file", "/hub="+program,
		"--entrypoint", "/hub", "--entrypoint", "--verbose", "--out", out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tarball.ImageFromPath(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := got.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if entrypoint := strings.Join(config.Config.Entrypoint, " "); entrypoint != "/hub --verbose" || config.Config.User != "65532" {
		t.Errorf("entrypoint %q of user %q", entrypoint, config.Config.User)
	}
	if _, err := run(t, "image", "--ref", "a/b:c", "--file", "/hub", "--out", out); !errors.Is(err, image.ErrSpec) {
		t.Errorf("a file without a source: %v, want %v", err, image.ErrSpec)
	}
}
