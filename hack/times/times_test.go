// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSampleIsTheFirstLineOfProcStat(t *testing.T) {
	at := time.Unix(1, 0)
	for label, c := range map[string]struct {
		reason, stat string
		want         sample
		refused      bool
	}{
		"all figures": {
			reason: "waiting for a disk is idle, and guests are counted as users already",
			stat:   "cpu  100 200 300 1000 50 10 20 30 999 999\ncpu0 1 1 1 1\n",
			want:   sample{At: at, Busy: 6.6, Idle: 10.5},
		},
		"another file":  {reason: "it is not read as one", stat: "MemTotal: 1 kB\n", refused: true},
		"a word in it":  {reason: "it is named", stat: "cpu 1 2 three 4 5 6 7 8\n", refused: true},
		"an empty file": {reason: "there is no first line", refused: true},
	} {
		t.Run(label, func(t *testing.T) {
			got, err := parseSample(at, c.stat)
			if (err != nil) != c.refused {
				t.Fatalf("%s: error %v", c.reason, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" && !c.refused {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

const (
	samples = `{"At":"2026-01-01T00:00:00Z","Busy":0,"Idle":0}
{"At":"2026-01-01T00:00:10Z","Busy":5,"Idle":15}
{"At":"2026-01-01T00:00:20Z","Busy":25,"Idle":15}
`
	phases = `{"Name":"unit","Start":"2026-01-01T00:00:00Z","End":"2026-01-01T00:00:20Z","CPU":21.4,"Exit":0}
`
	events = `{"Time":"2026-01-01T00:00:00Z","Action":"start","Package":"github.com/spokelet/spokelet/a"}
{"Time":"2026-01-01T00:00:10Z","Action":"pass","Package":"github.com/spokelet/spokelet/a","Test":"TestA/waits","Elapsed":10}
{"Time":"2026-01-01T00:00:10Z","Action":"pass","Package":"github.com/spokelet/spokelet/a","Test":"TestA","Elapsed":10}
{"Time":"2026-01-01T00:00:20Z","Action":"fail","Package":"github.com/spokelet/spokelet/a","Test":"TestAB","Elapsed":2.5}
{"Time":"2026-01-01T00:00:20Z","Action":"fail","Package":"github.com/spokelet/spokelet/a","Elapsed":20}
`
	want = `| phase | wall, s | processor, s | machine idle meanwhile, s |
|---|--:|--:|--:|
| unit | 20 | 21 | 15 |

| package | run | wall, s | machine idle meanwhile, s |
|---|---|--:|--:|
| a | unit | 20.0 | 15.0 |

| test | run | wall, s | machine idle meanwhile, s |
|---|---|--:|--:|
| a TestA/waits | unit | 10.0 | 15.0 |
| a TestAB | unit | 2.5 | 0.0 |
`
)

func TestReportReplacesWhatIsBetweenTheMarkers(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{samplesFile: samples, phasesFile: phases, "unit.json": events} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(file, []byte("# A\n"+begin+"old\n"+end+"## B\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), os.Stdout, []string{"report", "--write", file, dir}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("# A\n"+begin+want+end+"## B\n", string(got)); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func TestReportRefusesADocumentWithoutMarkers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(file, []byte("# A\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), os.Stdout, []string{"report", "--write", file, dir}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name the document", err)
	}
}

func TestPhaseFailsAsItsCommandDoes(t *testing.T) {
	dir := t.TempDir()
	err := run(t.Context(), os.Stdout, []string{"run", dir, "broken", "sh", "-c", "exit 7"})
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 7 {
		t.Errorf("error %v", err)
	}
	m, err := readMeasurement(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.phases) != 1 || m.phases[0].Name != "broken" || m.phases[0].Exit != 7 {
		t.Errorf("phases: %+v", m.phases)
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"record"}, {"run", "dir", "name"}, {"report", "--read", "file", "dir"}} {
		if err := run(t.Context(), os.Stdout, args); !errors.Is(err, errUsage) {
			t.Errorf("%q: error %v", args, err)
		}
	}
}
