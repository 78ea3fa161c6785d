// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/e2e/env"
)

// client is one release of kubectl, ready for both ways to a pod of a spoke:
// through its virtual node on the hub, and at the spoke itself.
type client struct {
	name       string
	node       string // the virtual one
	hub, spoke env.Command
}

// spdyKubectl is the program that is the last kubectl to speak SPDY by default.
const spdyKubectl = "kubectl129"

// clients are the kubectl of the clusters' release, which speaks WebSocket to the
// API server, and the last that speaks SPDY.
func (s *suite) clients() []client { return s.clientsOf(s.spoke()) }

// clientsOf are they for the pods of a spoke.
func (s *suite) clientsOf(spoke *site) []client {
	in := []string{"-n", podsNamespace}
	hubSPDY, spokeSPDY := s.env.KubectlAt(s.spdy, s.hub.Cluster), s.env.KubectlAt(s.spdy, spoke.Cluster)
	return []client{
		{name: "WebSocket", node: spoke.Name, hub: s.hub.ctl.With(in...), spoke: spoke.ctl.With(in...)},
		{name: "SPDY", node: spoke.Name, hub: hubSPDY.With(in...), spoke: spokeSPDY.With(in...)},
	}
}

// nodeOn is the name of the virtual node, or on the other way that of the spoke's
// only node.
func (c client) nodeOn(way string) string {
	if way == wayHub {
		return c.node
	}
	return c.node + "-node"
}

// on is the command for a way.
func (c client) on(way string) env.Command {
	if way == wayHub {
		return c.hub
	}
	return c.spoke
}

// The ways of a client.
const (
	wayHub   = "hub"
	waySpoke = "spoke"
)

// answer is what a command printed, and its exit code.
type answer struct {
	Out, Err string
	Code     int
}

// patience bounds a command of a client that must end by itself.
const patience = 60 * time.Second

// ask runs a command to its end.
func ask(ctx context.Context, ctl env.Command, input string, args ...string) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := ctl.Cmd(ctx, args...)
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	return answered(cmd, cmd.Run())
}

// speak is ask with a line of input that is not the end of it: who attaches is let
// go when his input ends.
func speak(ctx context.Context, ctl env.Command, line string, args ...string) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := ctl.Cmd(ctx, args...)
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	in, err := cmd.StdinPipe()
	if err != nil {
		return answered(cmd, err)
	}
	if err := cmd.Start(); err != nil {
		return answered(cmd, err)
	}
	_, err = io.WriteString(in, line+"\n")
	// The second closes the input, once the command has ended.
	return answered(cmd, errors.Join(err, cmd.Wait()))
}

// answered reads what a command, which has ended, wrote to its buffers.
func answered(cmd *exec.Cmd, err error) answer {
	a := answer{Out: fmt.Sprint(cmd.Stdout), Err: fmt.Sprint(cmd.Stderr)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		a.Code = exit.ExitCode()
	} else if err != nil {
		a.Code, a.Err = -1, a.Err+err.Error()
	}
	return a
}

var (
	containerIDs = regexp.MustCompile(`[0-9a-f]{64}`)
	podUIDs      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// plain replaces what differs from one call to the next, and between the two pods.
func (a answer) plain() answer {
	for _, text := range []*string{&a.Out, &a.Err} {
		*text = podUIDs.ReplaceAllString(containerIDs.ReplaceAllString(*text, "ID"), "UID")
	}
	return a
}

// same runs a command on both ways, and returns what the spoke answers; the other
// answer has to be the same, in the form that a function gives both.
func (c client) same(t *testing.T, form func(answer) answer, input string, args ...string) answer {
	t.Helper()
	var through, direct answer
	var group sync.WaitGroup
	group.Go(func() { through = ask(t.Context(), c.hub, input, args...) })
	group.Go(func() { direct = ask(t.Context(), c.spoke, input, args...) })
	group.Wait()
	if diff := cmp.Diff(form(direct), form(through)); diff != "" {
		t.Errorf("%s: kubectl %s (-spoke +hub):\n%.4000s", c.name, strings.Join(args, " "), diff)
	}
	return direct
}

// sorted orders the lines of what was printed, where nobody promises an order.
func (a answer) sorted() answer {
	lines := slices.Sorted(strings.Lines(a.Out))
	a.Out = strings.Join(lines, "")
	return a
}

// verb is a command with what the spoke answers: the same has to come through the
// hub.
type verb struct {
	args  []string
	input string
	code  int
	// out and err are parts of what it prints.
	out, err string
	// unordered lines may come in any order.
	unordered bool
}

func (c client) verbs(t *testing.T, verbs map[string]verb) {
	t.Helper()
	for name, v := range verbs {
		t.Run(name, func(t *testing.T) {
			form := answer.plain
			if v.unordered {
				form = answer.sorted
			}
			got := c.same(t, form, v.input, v.args...)
			// An answer that is the same and not the right one would prove nothing.
			if got.Code != v.code || !strings.Contains(got.Out, v.out) || !strings.Contains(got.Err, v.err) {
				t.Errorf("the spoke answers %d, %.400q, %.400q", got.Code, got.Out, got.Err)
			}
		})
	}
}

// both runs a test once per way, at the same time, and compares what it returns.
func (c client) both(t *testing.T, run func(ctl env.Command, way string) (string, error)) {
	t.Helper()
	type result struct {
		Got string
		Err string
	}
	results := make([]result, 2)
	var group sync.WaitGroup
	for i, way := range []struct {
		name string
		ctl  env.Command
	}{{waySpoke, c.spoke}, {wayHub, c.hub}} {
		group.Go(func() {
			got, err := run(way.ctl, way.name)
			results[i].Got = got
			if err != nil {
				results[i].Err = way.name + ": " + err.Error()
			}
		})
	}
	group.Wait()
	for _, r := range results {
		if r.Err != "" {
			t.Errorf("%s: %s", c.name, r.Err)
		}
	}
	if diff := cmp.Diff(results[0].Got, results[1].Got); diff != "" {
		t.Errorf("%s (-spoke +hub):\n%.4000s", c.name, diff)
	}
}
