// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// controlFD is the descriptor on which the confined process, and then workerd, reports progress.
	controlFD = 3
	// maxControlBytes bounds what is read of it.
	maxControlBytes = 64 << 10
	// waitDelay is how long the outputs of a killed process are waited for.
	waitDelay = 2 * time.Second
)

// event is one line of the control descriptor. The last is workerd's own.
type event struct {
	Event string `json:"event"`
	Error string `json:"error,omitempty"`
}

const (
	eventConfined = "confined" // what comes is workerd
	eventFailed   = "failed"   // no workerd comes
	eventListen   = "listen"   // the script is loaded
)

// probe has workerd load one script, and returns the message if workerd rejects it. The process
// has ended by then.
func (c *CheckConfig) probe(ctx context.Context, file string) (string, error) {
	dir, err := os.MkdirTemp(c.Temp, "probe-")
	if err != nil {
		return "", fmt.Errorf("temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	within, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// The process is killed with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := c.start(within, file, dir)
	if err != nil {
		return "", err
	}
	progress := p.readProgress(within)
	late := within.Err() != nil
	cancel() // and the process is killed
	state, err := p.wait()
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	switch {
	case progress.loaded:
		return "", nil
	case progress.failure != "":
		return "", fmt.Errorf("confine workerd: %s", progress.failure)
	case late && !progress.confined:
		return "", fmt.Errorf("%w: in %s it was not even begun", ErrCannotCheck, c.Timeout)
	case !progress.confined:
		return "", fmt.Errorf("confine workerd: it ended before: %s: %s", state, p.output.message())
	}
	return c.explainFailure(state, late, p.output.message(c.Work, filepath.Dir(file), dir))
}

// explainFailure returns why a script did not load in a confined process.
func (c *CheckConfig) explainFailure(state *os.ProcessState, late bool, said string) (string, error) {
	if late {
		// workerd rejects a script that waits at once, so a late one has used the processor.
		if busy := state.UserTime() + state.SystemTime(); busy < c.Timeout/4 {
			return "", fmt.Errorf("%w: it had the processor for %s of %s", ErrCannotCheck, busy.Round(time.Millisecond), c.Timeout)
		}
		return "workerd: the script is not loaded within " + c.Timeout.String(), nil
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGKILL:
		// Memory that the script writes to has a limit of its own.
		return "", fmt.Errorf("%w: it was killed, as for want of memory", ErrCannotCheck)
	case said != "":
		return said, nil
	case status.Signaled():
		return "workerd: " + status.Signal().String(), nil
	default:
		return fmt.Sprintf("workerd: it ended with code %d", state.ExitCode()), nil
	}
}

// process is workerd, or the helper that executes it.
type process struct {
	command *exec.Cmd
	output  *outputTail
	events  *os.File
}

// start starts a process that inherits three descriptors, and neither environment nor terminal.
func (c *CheckConfig) start(ctx context.Context, file, dir string) (*process, error) {
	if len(c.Confine) == 0 {
		return nil, errors.New("confine workerd: no command does it")
	}
	argument, err := json.Marshal(confinement{
		Command: []string{c.Workerd, "serve", fmt.Sprintf("--control-fd=%d", controlFD), file},
		Read:    []string{c.Work, filepath.Dir(file)}, Write: dir, Memory: c.Memory,
	})
	if err != nil {
		return nil, fmt.Errorf("confine workerd: %w", err)
	}
	events, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("confine workerd: %w", err)
	}
	defer func() { _ = theirs.Close() }()
	p := &process{output: &outputTail{}, events: events}
	//nolint:gosec // the command is the operator's
	p.command = exec.CommandContext(ctx, c.Confine[0], append(c.Confine[1:len(c.Confine):len(c.Confine)], string(argument))...)
	p.command.Dir = dir
	p.command.Env = []string{}
	p.command.Stderr = p.output
	p.command.ExtraFiles = []*os.File{theirs}
	p.command.WaitDelay = waitDelay
	killWithParent(p.command)
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("confine workerd: %w", err), events.Close())
	}
	return p, nil
}

// progress is how far a process got.
type progress struct {
	confined, loaded bool
	failure          string
}

// readProgress reads events until the script is loaded, the process is gone or the context ends.
func (p *process) readProgress(ctx context.Context) progress {
	defer context.AfterFunc(ctx, func() { _ = p.events.SetReadDeadline(time.Now()) })()
	var got progress
	events := json.NewDecoder(io.LimitReader(p.events, maxControlBytes))
	for {
		var e event
		if err := events.Decode(&e); err != nil {
			return got
		}
		switch e.Event {
		case eventConfined:
			got.confined = true
		case eventFailed:
			got.failure = e.Error
			return got
		case eventListen:
			got.loaded = got.confined
			return got
		}
	}
}

// wait returns how a process ended.
func (p *process) wait() (*os.ProcessState, error) {
	defer func() { _ = p.events.Close() }()
	err := p.command.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && p.command.ProcessState == nil {
		return nil, fmt.Errorf("wait for workerd: %w", err)
	}
	return p.command.ProcessState, nil
}
