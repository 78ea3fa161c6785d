// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
)

const (
	fleetSize = 200

	// secretCount of secretSize bytes are on the hub meanwhile, and are none of its
	// business: what a cluster costs does not depend on them.
	secretCount = 2000
	secretSize  = 2000
)

var errFleet = errors.New("fleet did not get ready")

// clusters measures what one more connected cluster costs the hub: a fleet of
// agents in a process of its own joins, and the hub's memory is compared.
func (s *suite) clusters(ctx context.Context) ([]figure.Figure, error) {
	if err := s.manySecrets(ctx, secretCount, secretSize); err != nil {
		return nil, err
	}
	before, err := s.rss(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	invitations, err := s.invite(ctx)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(s.env.Build.Root, "bin", "fleet")
	build := env.Command{Path: "go", Dir: filepath.Join(s.env.Build.Root, "e2e")}
	if _, err := build.Run(ctx, "build", "-o", binary, "./cmd/fleet"); err != nil {
		return nil, err
	}
	cmd := env.Command{Path: binary}.Cmd(ctx)
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
	defer func() { _ = cmd.Wait() }() // its end is asked for by closing its input
	defer func() { _ = in.Close() }()
	for _, line := range append(invitations, "start") {
		if _, err := fmt.Fprintln(in, line); err != nil {
			return nil, err
		}
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		return nil, errFleet
	}
	if _, err := s.hub.ctl.Run(ctx, "wait", "--for=condition=Ready", "nodes", "-l", "spokelet.io/cluster", "--timeout=120s"); err != nil {
		return nil, err
	}
	after, err := s.rss(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "hub.rss.per.cluster.mib", Value: (after - before) / fleetSize, Unit: "MiB", Detail: fmt.Sprintf("%.1f MiB with %d more clusters, %.1f before, %d Secrets on the hub", after, fleetSize, before, secretCount)},
	}, nil
}

// invite makes the records and tokens, and returns each as one line of JSON.
func (s *suite) invite(ctx context.Context) ([]string, error) {
	var lines []string
	for i := range fleetSize {
		out, err := s.hub.ctl.Run(ctx, "spokelet", "join", fmt.Sprintf("fleet-%d", i), "-o", "json")
		if err != nil {
			return nil, err
		}
		lines = append(lines, strings.Join(strings.Fields(out), " "))
	}
	return lines, nil
}
