// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fleet joins many clusters that exist only as agents: real tunnels,
// enrolment and sessions, and a node summary each, with no cluster behind
// them. Benchmarks and tests of the hub run it as a process of its own. It
// reads one invitation a line from standard input, the JSON that "kubectl
// spokelet join -o json" prints, prints "ready" once all are connected, and
// ends when its input does.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/tunnel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var agents []*tunnel.Agent
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "start" {
		doors, err := fleet.Doors()
		if err != nil {
			return err
		}
		agent, err := fleet.Join(ctx, lines.Bytes(), doors, false)
		if err != nil {
			return err
		}
		agents = append(agents, agent)
		running.Go(func() { _ = agent.Run(ctx) }) // ends with ctx
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, agent := range agents {
			if !agent.Ready() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%d agents: not all connected: %w", len(agents), err)
	}
	fmt.Println("ready")
	for lines.Scan() { // the end of the input is the signal
	}
	return lines.Err()
}
