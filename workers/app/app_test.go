// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	builderv1alpha1 "github.com/spokelet/spokelet/workers/api/builder/v1alpha1"
	"github.com/spokelet/spokelet/workers/build"
)

// run runs the command line and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	cmd := Command()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCommandsHaveHelp(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"the program":  {"it names its commands", []string{"--help"}, []string{"controller", "build", "--config"}},
		"the operator": {"its flags are those that the chart gives", []string{"controller", "--help"}, []string{"--namespace", "--health-address", "--metrics-address", "--kubeconfig"}},
		"builds":       {"each step is a command", []string{"build", "--help"}, []string{"fetch", "check", "push", "--input", "--dir", "--message"}},
		"the version":  {"it is that of the linker", []string{"--version"}, []string{"spokelet-workers version " + Version}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in it: %s\n%s", want, tc.reason, out)
				}
			}
			if strings.Contains(out, confineCommand) {
				t.Errorf("it names %s, which is no command for people", confineCommand)
			}
		})
	}
}

func TestWrongArgumentsAreReported(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"a command that there is not": {"the name is wrong", []string{"serve"}, `unknown command "serve"`},
		"a flag that there is not":    {"the name is wrong", []string{"controller", "--port=1"}, "unknown flag: --port"},
		"an argument of the operator": {"it takes none", []string{"controller", "now"}, `unknown command "now"`},
		"an argument of a step":       {"it takes none", []string{"build", "push", "now"}, `unknown command "now"`},
		"a file that is not there":    {"it is named", []string{"controller", "--config=/nowhere/config.yaml"}, "/nowhere/config.yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, without %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestFailedStepWritesResult(t *testing.T) {
	for _, step := range []string{"fetch", "check", "push"} {
		t.Run(step, func(t *testing.T) {
			message := filepath.Join(t.TempDir(), "message")
			_, err := run(t, "build", step, "--config=/nowhere/config.yaml", "--input=/nowhere/bundle.json", "--message="+message)
			if !errors.Is(err, errNoImage) {
				t.Errorf("it ends with %v", err)
			}
			text, _ := os.ReadFile(message)
			result, err := build.Decode(string(text))
			if err != nil || result.Failure == nil || !result.Failure.Retry || !strings.Contains(result.Failure.Message, "/nowhere/") {
				t.Errorf("the kubelet reads %q: %v", text, err)
			}
		})
	}
}

func TestStepExitCodeStopsBuild(t *testing.T) {
	cases := map[string]struct {
		reason string
		result build.Result
		err    error
		// wrote tells whether the kubelet finds a result.
		wrote, fails bool
	}{
		"nothing to say": {"the next step runs", build.Result{}, nil, false, false},
		"an image":       {"it was the last step", build.Result{Image: "a@sha256:b"}, nil, true, false},
		"a rejection":    {"the next step must not run", build.Result{Rejected: []builderv1alpha1.Rejection{{ScriptName: "hello"}}}, nil, true, true},
		"an error":       {"as a rejection", build.Result{}, errors.New("boom"), true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := buildFlags{terminationMessage: filepath.Join(t.TempDir(), "message")}
			err := b.writeResult(tc.result, tc.err)
			_, statErr := os.Stat(b.terminationMessage)
			if diff := cmp.Diff([]bool{tc.wrote, tc.fails}, []bool{statErr == nil, err != nil}); diff != "" {
				t.Errorf("%v: %s (-want +got):\n%s", err, tc.reason, diff)
			}
		})
	}
}
