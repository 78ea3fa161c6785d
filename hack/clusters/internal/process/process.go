// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process starts programs that outlive the one that starts them, and
// finds, watches and stops them later, from another process, without ever
// taking a stranger for one of them: a process is known by its id together with
// its start time and the machine's boot, is signalled through a pidfd, and
// carries a mark in its environment by which even one that was never recorded
// can be found.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MarkEnv is the environment variable that marks a process, and what it starts,
// as belonging to the set whose state directory is its value.
const MarkEnv = "SPOKELET_CLUSTERS_SET"

// Spec is what to start.
type Spec struct {
	Name      string   // of the component, for messages
	Path      string   // of the program
	Args      []string // without the program's name
	Env       []string // besides PATH; NAME=value
	Mark      string   // value of MarkEnv
	Log       string   // file that gets standard output and error, appended
	Namespace string   // path of the network namespace; empty for the caller's
}

// Record is a started process, as kept on disk.
type Record struct {
	Spec  Spec
	PID   int
	Start uint64 // start time in clock ticks since boot, from proc(5)
	Boot  string // the kernel's boot id, because ids and ticks begin anew
}

// Start starts the program in a session of its own and writes its record.
func Start(spec Spec, record string) (*Record, error) {
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:gosec,noctx // it outlives every context, on purpose
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: log: %w", spec.Name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.Env = Environment(spec.Mark, spec.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := Within(spec.Namespace, cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	// It cannot be gone before we wait for it, however soon it ends.
	started, err := awaitMark(cmd.Process.Pid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Name, err)
	}
	started.Spec = spec
	go func() { _ = cmd.Wait() }() // reaps it, for as long as we are its parent
	content, err := json.MarshalIndent(started, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: record: %w", spec.Name, err)
	}
	if err := os.WriteFile(record, content, 0o600); err != nil {
		return nil, fmt.Errorf("%s: record: %w", spec.Name, err)
	}
	return started, nil
}

// awaitMark identifies a process that has just been started, once it shows its
// environment: exec(2) closes the descriptor by which os/exec learns of its
// success some microseconds before it sets the environment up, and until then
// Marked could not find the process.
func awaitMark(pid int) (*Record, error) {
	for {
		environ, err := os.ReadFile(proc(pid, "environ"))
		// One that is just ending has no environment any more.
		if err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		started, ended, err := identify(pid)
		if err != nil || ended || len(environ) > 0 {
			return started, err
		}
		runtime.Gosched()
	}
}

// Environment is what programs of a set get to see: nothing of the caller's but
// where programs are. Its proxies, for one, do not know the set's addresses.
func Environment(mark string, more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), MarkEnv + "=" + mark}, more...)
}

// Load reads a record that Start wrote.
func Load(path string) (*Record, error) {
	content, err := os.ReadFile(path) //nolint:gosec // a path of our own state
	if err != nil {
		return nil, err
	}
	var record Record
	if err := json.Unmarshal(content, &record); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &record, nil
}

// Alive tells whether that very process runs.
func (r *Record) Alive() bool {
	now, ended, err := identify(r.PID)
	return err == nil && !ended && now.Start == r.Start && now.Boot == r.Boot
}

// Stop asks the process to end, and kills it when grace has passed.
func (r *Record) Stop(ctx context.Context, grace time.Duration) error {
	handle, err := open(r.PID)
	if err != nil {
		return err
	}
	defer handle.close()
	if !r.Alive() { // checked after the handle was opened: now it cannot change
		return nil
	}
	if err := handle.signal(unix.SIGTERM); err != nil {
		return err
	}
	polite, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if handle.wait(polite) == nil {
		return nil
	}
	if err := handle.signal(unix.SIGKILL); err != nil {
		return err
	}
	return handle.wait(ctx)
}

// Tail gives the last lines of the process's log.
func (r *Record) Tail(lines int) string { return tail(r.Spec.Log, lines) }

func tail(path string, lines int) string {
	content, err := os.ReadFile(path) //nolint:gosec // a log of our own
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Marked lists the processes that carry the mark.
func Marked(mark string) []int {
	want := MarkEnv + "=" + mark
	return find(func(pid int) bool {
		environ, err := os.ReadFile(proc(pid, "environ"))
		if err != nil {
			return false // gone, or another user's
		}
		for variable := range strings.SplitSeq(string(environ), "\x00") {
			if variable == want {
				return true
			}
		}
		return false
	})
}

// InNamespace lists the processes whose network namespace is the one bound to path.
func InNamespace(path string) []int {
	var want unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return nil
	}
	return find(func(pid int) bool {
		var have unix.Stat_t
		return unix.Stat(proc(pid, "ns/net"), &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino
	})
}

// KillAll kills what list finds, waits for it to end, and goes on until list
// finds nothing: what is being killed may still start something.
func KillAll(ctx context.Context, list func() []int) error {
	for {
		pids := list()
		if len(pids) == 0 {
			return nil
		}
		if err := kill(ctx, pids, list); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("processes %v: %w", pids, err)
		}
	}
}

func kill(ctx context.Context, pids []int, list func() []int) error {
	handles := make(map[int]*handle, len(pids))
	defer func() {
		for _, handle := range handles {
			handle.close()
		}
	}()
	for _, pid := range pids {
		handle, err := open(pid)
		if err != nil {
			return err
		}
		handles[pid] = handle
	}
	// Listed once more, now that the handles pin the ids: only what is still
	// ours is killed, whatever ended and was replaced in between.
	for _, pid := range list() {
		handle, ok := handles[pid]
		if !ok {
			continue
		}
		if err := handle.signal(unix.SIGKILL); err != nil {
			return err
		}
		if err := handle.wait(ctx); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}

// find lists the live processes that match, without the caller.
func find(match func(pid int) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !match(pid) {
			continue
		}
		if _, ended, err := identify(pid); err == nil && !ended {
			pids = append(pids, pid)
		}
	}
	return pids
}

// identify reads a process's start time. An ended one that its parent has not
// reaped yet (a zombie) still has one.
func identify(pid int) (found *Record, ended bool, err error) {
	content, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return nil, false, err
	}
	state, start, err := parseStat(string(content))
	if err != nil {
		return nil, false, fmt.Errorf("process %d: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, false, err
	}
	return &Record{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, state == "Z" || state == "X", nil
}

var errStat = errors.New("unexpected /proc stat line")

// parseStat reads the state and start time from proc_pid_stat(5). The command
// name before them is in parentheses and may hold any character, so that
// fields count from the last parenthesis.
func parseStat(line string) (state string, start uint64, err error) {
	_, rest, found := cutLast(line, ")")
	fields := strings.Fields(rest)
	const startField = 22 - 3 // fields begins with the third
	if !found || len(fields) <= startField {
		return "", 0, errStat
	}
	start, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return "", 0, errStat
	}
	return fields[0], start, nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

func proc(pid int, file string) string { return filepath.Join("/proc", strconv.Itoa(pid), file) }
