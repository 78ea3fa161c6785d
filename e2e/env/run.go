// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Command is one program with fixed leading arguments, such as kubectl with a
// kubeconfig.
type Command struct {
	// Path is the program.
	Path string
	// Args come before the arguments of each call.
	Args []string
	// Env is added to the process's environment.
	Env []string
	// Dir is the working directory; empty means the caller's.
	Dir string
}

// Error is a command that failed, with what it said.
type Error struct {
	Command string
	Output  string
	Err     error
}

// Error names the command and ends with what it said.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, strings.TrimSpace(e.Output))
}

// Unwrap returns why the process failed.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is the code of the process that failed, or -1.
func (e *Error) ExitCode() int {
	if exit, ok := errors.AsType[*exec.ExitError](e.Err); ok {
		return exit.ExitCode()
	}
	return -1
}

// Run runs the command and returns its standard output. On failure the error
// is an *Error that carries standard error.
func (c Command) Run(ctx context.Context, args ...string) (string, error) {
	return c.RunInput(ctx, nil, args...)
}

// RunInput is Run with standard input.
func (c Command) RunInput(ctx context.Context, in io.Reader, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	cmd := c.Cmd(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), &Error{Command: c.line(args), Output: errOut.String(), Err: err}
	}
	return out.String(), nil
}

// Cmd prepares the process, for callers that stream.
func (c Command) Cmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, append(append([]string{}, c.Args...), args...)...) //nolint:gosec // to run what it is told is its purpose
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	return cmd
}

func (c Command) line(args []string) string {
	return filepath.Base(c.Path) + " " + strings.Join(args, " ")
}

// With returns the command with further leading arguments.
func (c Command) With(args ...string) Command {
	c.Args = slices.Concat(c.Args, args)
	return c
}

// Root returns the top of the checkout that holds the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("checkout: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "buf.gen.yaml")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("checkout: no buf.gen.yaml above the working directory: %w", os.ErrNotExist)
}
