// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spokelet/spokelet/e2e/env"
)

// Names are those of so many clusters.
func Names(prefix string, size int) []string {
	names := make([]string, size)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

// Start joins honest agents of those names, in a process of their own, and waits until
// all are connected and their nodes are Ready. The caller closes it.
func Start(ctx context.Context, e *env.Env, names []string) (*env.Child, error) {
	binary, err := e.Build.Tool(ctx, "fleet")
	if err != nil {
		return nil, err
	}
	invitations, err := inviteAll(ctx, e, names)
	if err != nil {
		return nil, err
	}
	fleet, err := env.Command{Path: binary}.StartChild(ctx)
	if err != nil {
		return nil, err
	}
	err = connect(fleet, invitations)
	if err == nil {
		err = nodesReady(ctx, e, names)
	}
	if err != nil {
		return nil, errors.Join(err, fleet.Close())
	}
	return fleet, nil
}

var errFleet = errors.New("fleet did not get ready")

// connect hands the invitations over and waits until all agents are connected.
func connect(fleet *env.Child, invitations []string) error {
	answer, err := fleet.Request(append(invitations, "start")...)
	if err != nil {
		return err
	}
	if answer != "ready" {
		return fmt.Errorf("%w: it answered %q", errFleet, answer)
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

// Invite makes the record of a cluster and a token, by "kubectl spokelet join" with
// further flags, and returns them as one line of JSON.
func Invite(ctx context.Context, e *env.Env, name string, flags ...string) (string, error) {
	args := append([]string{"spokelet", "join", name, "-o", "json"}, flags...)
	out, err := e.Kubectl(e.Set.Hub()).Run(ctx, args...)
	return strings.Join(strings.Fields(out), " "), err
}

// inviteAll invites clusters by one command: with names from a file it prints a line each, in
// their order.
func inviteAll(ctx context.Context, e *env.Env, names []string) ([]string, error) {
	list := strings.NewReader(strings.Join(names, "\n"))
	out, err := e.Kubectl(e.Set.Hub()).RunInput(ctx, list, "spokelet", "join", "-f", "-", "-o", "json")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(names) {
		return nil, fmt.Errorf("%w: %d of %d clusters are invited", errFleet, len(lines), len(names))
	}
	return lines, nil
}
