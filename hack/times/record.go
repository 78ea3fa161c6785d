// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The files of a run.
const (
	samplesFile = "cpu"
	phasesFile  = "phases"
)

// A sample says what the processors have done since the machine started, in seconds of one
// processor.
type sample struct {
	At         time.Time
	Busy, Idle float64
}

// A phase is a command of the run. Its processor time is that of the command and of all
// processes that it waited for, and so without daemons that it started.
type phase struct {
	Name       string
	Start, End time.Time
	CPU        float64 // seconds
	Exit       int
}

// record samples the processors until the context ends. Where there is no /proc/stat
// (it is Linux') it says so, and the report has no columns of it.
func record(ctx context.Context, dir string, every time.Duration) error {
	file, err := create(dir, samplesFile)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	lines := json.NewEncoder(file)
	for {
		s, err := readSample()
		if err == nil {
			err = lines.Encode(s)
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return file.Close()
		case <-ticker.C:
		}
	}
}

func readSample() (sample, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return sample{}, fmt.Errorf("processors: %w", err)
	}
	return parseSample(time.Now(), string(stat))
}

// parseSample reads the first line of a /proc/stat (proc_stat(5)), whose figures are
// hundredths of a second.
func parseSample(at time.Time, stat string) (sample, error) {
	const user, idle, iowait, steal = 0, 3, 4, 7
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2+steal || fields[0] != "cpu" {
		return sample{}, fmt.Errorf("processors: %q is no first line of /proc/stat", line)
	}
	s := sample{At: at}
	for i, field := range fields[1 : 2+steal] { // what follows, of guests, is part of these
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return sample{}, fmt.Errorf("processors: %q: %w", line, err)
		}
		if i == idle || i == iowait {
			s.Idle += ticks / 100
		} else {
			s.Busy += ticks / 100
		}
	}
	return s, nil
}

// runPhase runs a command with this process' input and output, and adds a line about it.
// It fails as the command does.
func runPhase(ctx context.Context, dir, name string, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the developer's own
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A script then removes what it made.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	p := phase{Name: name, Start: time.Now()}
	failed := cmd.Run()
	p.End = time.Now()
	if state := cmd.ProcessState; state != nil {
		p.CPU = (state.UserTime() + state.SystemTime()).Seconds()
		p.Exit = state.ExitCode()
	}
	return errors.Join(failed, appendPhase(dir, p))
}

func appendPhase(dir string, p phase) error {
	file, err := create(dir, phasesFile)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(file).Encode(p), file.Close())
}

// create opens a file of the run to add to it.
func create(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // build output
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, filepath.Base(name)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // build output
}
