// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Child is a process that is told what to do by lines on its standard input, answers
// by lines on its standard output, and ends in order when its input does.
type Child struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// StartChild starts one. The end of ctx does not end it: its caller closes it.
func (c Command) StartChild(ctx context.Context) (*Child, error) {
	child := &Child{name: c.line(nil), cmd: c.Cmd(context.WithoutCancel(ctx))}
	child.cmd.Stderr = os.Stderr
	out, err := child.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", child.name, err)
	}
	if child.in, err = child.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", child.name, err)
	}
	child.lines = bufio.NewScanner(out)
	if err := child.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", child.name, err)
	}
	return child, nil
}

// Request writes lines to the process and waits for the line that it answers with. A
// process that has ended has none, and the error wraps io.EOF.
func (c *Child) Request(lines ...string) (string, error) {
	for _, line := range lines {
		if _, err := fmt.Fprintln(c.in, line); err != nil {
			return "", fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if c.lines.Scan() {
		return c.lines.Text(), nil
	}
	return "", fmt.Errorf("%s: no answer: %w", c.name, errors.Join(io.EOF, c.lines.Err()))
}

// Close ends the input of the process and waits for its end.
func (c *Child) Close() error {
	_ = c.in.Close() // a process that has ended has closed it
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
