// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/spokelet/spokelet/e2e/env"
)

// inviters is how many clusters are invited at once.
const inviters = 4

var errNotReady = errors.New("fleet did not get ready")

// Process is a fleet that runs.
type Process struct {
	cmd *exec.Cmd
	in  io.Closer
}

// Names are those of so many clusters.
func Names(prefix string, size int) []string {
	names := make([]string, size)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// Start joins honest agents of those names, in a process of their own, and waits until
// all are connected and their nodes are Ready.
func Start(ctx context.Context, e *env.Env, names []string) (*Process, error) {
	binary, err := e.Build.Tool(ctx, "fleet")
	if err != nil {
		return nil, err
	}
	invitations, err := inviteAll(ctx, e, names)
	if err != nil {
		return nil, err
	}
	// Its end is that of its input, so that it ends in order.
	cmd := env.Command{Path: binary}.Cmd(context.WithoutCancel(ctx))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, in: in}
	if err := ready(in, out, invitations); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := nodesReady(ctx, e, names); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// ready hands the invitations over and waits until all agents are connected.
func ready(in io.Writer, out io.Reader, invitations []string) error {
	for _, line := range append(invitations, "start") {
		if _, err := fmt.Fprintln(in, line); err != nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		return errNotReady
	}
	return nil
}

func nodesReady(ctx context.Context, e *env.Env, names []string) error {
	args := []string{"wait", "--for=condition=Ready", "--timeout=120s"}
	for _, name := range names {
		args = append(args, "node/"+name)
	}
	_, err := e.Kubectl(e.Set.Hub()).Run(ctx, args...)
	return err
}

// Close ends the fleet: its process ends when its input does.
func (p *Process) Close() error {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// Invite makes the record of a cluster and a token, and returns them as one line of
// JSON.
func Invite(ctx context.Context, e *env.Env, name string) (string, error) {
	out, err := e.Kubectl(e.Set.Hub()).Run(ctx, "spokelet", "join", name, "-o", "json")
	return strings.Join(strings.Fields(out), " "), err
}

func inviteAll(ctx context.Context, e *env.Env, names []string) ([]string, error) {
	lines, errs := make([]string, len(names)), make([]error, len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for range inviters {
		workers.Go(func() {
			for i := range next {
				lines[i], errs[i] = Invite(ctx, e, names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	workers.Wait()
	return lines, errors.Join(errs...)
}
