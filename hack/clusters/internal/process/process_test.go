// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStatReadsPastAnyName(t *testing.T) {
	const rest = " 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	cases := map[string]struct {
		reason string
		line   string
		state  string
		start  uint64
		err    error
	}{
		"a plain name": {
			reason: "the third and the twenty-second field",
			line:   "12 (etcd) S" + rest, state: "S", start: 4711,
		},
		"a name with blanks and parentheses": {
			reason: "a program names itself as it likes",
			line:   "12 (a) R 1 (b) Z" + rest, state: "Z", start: 4711,
		},
		"a line cut short": {
			reason: "no start time is not start time zero",
			line:   "12 (etcd) S 1 1", err: errStat,
		},
		"no name": {
			reason: "nothing to count from",
			line:   "12 etcd S" + rest, err: errStat,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state, start, err := parseStat(tc.line)
			if state != tc.state || start != tc.start || !errors.Is(err, tc.err) {
				t.Errorf("%q, %d, %v; want %q, %d, %v: %s", state, start, err, tc.state, tc.start, tc.err, tc.reason)
			}
		})
	}
}

// sleeper starts a process that stays until it is stopped; script is what it
// does before.
func sleeper(t *testing.T, script string) (started *Record, path string) {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("needs a shell: %v", err)
	}
	dir := t.TempDir()
	path = filepath.Join(dir, "record.json")
	ready := filepath.Join(dir, "ready")
	if err := unix.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	started, err = Start(Spec{
		Name: "sleeper", Path: shell, Args: []string{"-c", script + " echo >" + ready + "; while :; do sleep 60 & wait $!; done"},
		Mark: dir, Log: filepath.Join(dir, "log"),
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := KillAll(context.WithoutCancel(t.Context()), func() []int { return Marked(dir) }); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.ReadFile(ready); err != nil { // blocks until the script is there
		t.Fatal(err)
	}
	return started, path
}

func TestARecordFindsItsProcessAgain(t *testing.T) {
	started, path := sleeper(t, "")
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !loaded.Alive() {
		t.Error("the process is not found")
	}
	stranger := *loaded
	stranger.Start++
	if stranger.Alive() {
		t.Error("a process of another start time is taken for ours")
	}
	stranger = *loaded
	stranger.Boot = "another boot"
	if stranger.Alive() {
		t.Error("a process of another boot is taken for ours")
	}
	if !slices.Contains(Marked(started.Spec.Mark), started.PID) {
		t.Error("the mark does not find it")
	}
	if len(Marked(started.Spec.Mark+"x")) != 0 {
		t.Error("another mark finds something")
	}
}

// atScale is how often something is tested: as often as fits into every run, or more often at
// SPOKELET_TEST_FULL.
func atScale(always, full int) int {
	if os.Getenv("SPOKELET_TEST_FULL") != "" {
		return full
	}
	return always
}

func TestAProcessBearsItsMarkWhenStartReturns(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Skipf("needs sleep: %v", err)
	}
	// The window between exec's success and the environment is microseconds
	// wide: many at once hit it within a few hundred starts.
	for range 8 {
		t.Run("beside others", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			spec := Spec{Name: "sleep", Path: path, Args: []string{"3600"}, Mark: dir, Log: filepath.Join(dir, "log")}
			for range atScale(25, 100) {
				started, err := Start(spec, filepath.Join(dir, "record.json"))
				if err != nil {
					t.Fatal(err)
				}
				found := Marked(dir)
				if err := started.Stop(t.Context(), time.Minute); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(found, []int{started.PID}) {
					t.Fatalf("processes %v bear the mark, want %d alone", found, started.PID)
				}
			}
		})
	}
}

func TestAProcessThatEndsAtOnceWasStarted(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("true")
	if err != nil {
		t.Skipf("needs true: %v", err)
	}
	// It has no environment any more while it ends, for some microseconds.
	for range 8 {
		t.Run("beside others", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			spec := Spec{Name: "true", Path: path, Mark: dir, Log: filepath.Join(dir, "log")}
			for range atScale(50, 200) {
				if _, err := Start(spec, filepath.Join(dir, "record.json")); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestStopEndsAProcess(t *testing.T) {
	cases := map[string]struct {
		reason string
		script string
	}{
		"one that listens": {
			reason: "SIGTERM is enough",
		},
		"one that does not": {
			reason: "it is killed when the grace has passed",
			script: "trap '' TERM;",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			record, _ := sleeper(t, tc.script)
			if err := record.Stop(t.Context(), 300*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if record.Alive() {
				t.Errorf("it is still there: %s", tc.reason)
			}
			if err := record.Stop(t.Context(), time.Minute); err != nil {
				t.Errorf("stopping it again: %v", err)
			}
		})
	}
}

func TestStopLeavesAStrangerAlone(t *testing.T) {
	record, path := sleeper(t, "")
	stranger, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	stranger.Start-- // as if the id had been given to a later process
	if err := stranger.Stop(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if !record.Alive() {
		t.Error("a process that only has the same id was stopped")
	}
}

func TestKillAllEndsChildrenToo(t *testing.T) {
	record, _ := sleeper(t, "sleep 3600 & sleep 3600 &")
	mark := record.Spec.Mark
	if err := KillAll(t.Context(), func() []int { return Marked(mark) }); err != nil {
		t.Fatal(err)
	}
	if left := Marked(mark); len(left) != 0 {
		t.Errorf("still there: %v", left)
	}
}

func TestStartSaysWhatItCouldNotStart(t *testing.T) {
	dir := t.TempDir()
	_, err := Start(Spec{Name: "nothing", Path: "/nonexistent/program", Log: filepath.Join(dir, "log")}, filepath.Join(dir, "r"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}
