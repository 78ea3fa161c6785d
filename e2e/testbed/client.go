// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

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

	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/e2e/env"
)

// Client is one release of kubectl, ready for both ways to a pod of a spoke:
// through its virtual node on the hub, and at the spoke itself.
type Client struct {
	Name       string
	Node       string // the virtual one
	SpokeNode  string // the only one of the spoke
	Hub, Spoke env.Command
}

// spdyKubectl is the program that is the last kubectl to speak SPDY by default.
const spdyKubectl = "kubectl129"

// Clients are the kubectl of the clusters' release, which speaks WebSocket to the
// API server, and the last that speaks SPDY.
func (s *Testbed) Clients() []Client { return s.ClientsOf(s.Spoke()) }

// ClientsOf are they for the pods of a spoke.
func (s *Testbed) ClientsOf(spoke *Site) []Client {
	in := []string{"-n", PodsNamespace}
	hubSPDY, spokeSPDY := s.Env.KubectlAt(s.spdy, s.Hub.Cluster), s.Env.KubectlAt(s.spdy, spoke.Cluster)
	return []Client{
		{Name: "WebSocket", Node: spoke.Name, SpokeNode: spoke.Node, Hub: s.Hub.Command.With(in...), Spoke: spoke.Command.With(in...)},
		{Name: "SPDY", Node: spoke.Name, SpokeNode: spoke.Node, Hub: hubSPDY.With(in...), Spoke: spokeSPDY.With(in...)},
	}
}

// NodeOn is the name of the virtual node, or on the other way that of the spoke's
// only node.
func (c Client) NodeOn(way string) string {
	if way == WayHub {
		return c.Node
	}
	return c.SpokeNode
}

// On is the command for a way.
func (c Client) On(way string) env.Command {
	if way == WayHub {
		return c.Hub
	}
	return c.Spoke
}

// The ways of a client.
const (
	WayHub   = "hub"
	WaySpoke = "spoke"
)

// Answer is what a command printed, and its exit code.
type Answer struct {
	Out, Err string
	Code     int
}

// Patience bounds a command of a client that must end by itself.
const Patience = Settle

// Ask runs a command to its end.
func Ask(ctx context.Context, ctl env.Command, input string, args ...string) Answer {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	cmd := ctl.Cmd(ctx, args...)
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	return answered(cmd, cmd.Run())
}

// Speak is Ask with a line of input that is not the end of it: who attaches is let
// go when his input ends.
func Speak(ctx context.Context, ctl env.Command, line string, args ...string) Answer {
	ctx, cancel := context.WithTimeout(ctx, Patience)
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
func answered(cmd *exec.Cmd, err error) Answer {
	a := Answer{Out: fmt.Sprint(cmd.Stdout), Err: fmt.Sprint(cmd.Stderr)}
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

// Plain replaces what differs from one call to the next, and between the two pods.
func (a Answer) Plain() Answer {
	for _, text := range []*string{&a.Out, &a.Err} {
		*text = podUIDs.ReplaceAllString(containerIDs.ReplaceAllString(*text, "ID"), "UID")
	}
	return a
}

// sorted orders the lines of what was printed, where nobody promises an order.
func (a Answer) sorted() Answer {
	lines := slices.Sorted(strings.Lines(a.Out))
	a.Out = strings.Join(lines, "")
	return a
}

// Verb is a command with what the spoke answers: the same has to come through the
// hub.
type Verb struct {
	Args  []string
	Input string
	Code  int
	// Out and Err are parts of what it prints.
	Out, Err string
	// Unordered lines may come in any order.
	Unordered bool
}

// Verbs runs each of the commands as a test.
func (c Client) Verbs(t *testing.T, verbs map[string]Verb) {
	t.Helper()
	for name, v := range verbs {
		t.Run(name, func(t *testing.T) { c.Same(t, v) })
	}
}

// Same runs a command on both ways, again if a stream was cut, and returns what the spoke
// answers. The hub's answer has to be the same.
func (c Client) Same(t *testing.T, v Verb) Answer {
	t.Helper()
	what := c.Name + ": kubectl " + strings.Join(v.Args, " ")
	got, err := Retry(t, what, func(int) (Answer, error) { return c.compare(t.Context(), v) })
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return got
}

// compare returns what the spoke answers, and how one of the answers is wrong.
func (c Client) compare(ctx context.Context, v Verb) (direct Answer, err error) {
	var through Answer
	var group sync.WaitGroup
	group.Go(func() { through = Ask(ctx, c.Hub, v.Input, v.Args...) })
	group.Go(func() { direct = Ask(ctx, c.Spoke, v.Input, v.Args...) })
	group.Wait()
	// An answer that is the same and not the right one would prove nothing.
	if !v.answeredBy(direct) {
		return direct, direct.Wrong(WaySpoke, v.Code)
	}
	want, got := v.form(direct), v.form(through)
	diff := cmp.Diff(want, got)
	if diff == "" {
		return direct, nil
	}
	err = fmt.Errorf("the answers differ (-spoke +hub):\n%.4000s", diff)
	if through.lostEnd(WayHub, v.Code) && strings.HasPrefix(want.Out, got.Out) {
		err = fmt.Errorf("%w: %w", ErrCut, err)
	}
	return direct, err
}

// form is what is compared of an answer.
func (v Verb) form(a Answer) Answer {
	if v.Unordered {
		return a.sorted()
	}
	return a.Plain()
}

// answeredBy tells whether an answer is the one that is wanted.
func (v Verb) answeredBy(a Answer) bool {
	return a.Code == v.Code && strings.Contains(a.Out, v.Out) && strings.Contains(a.Err, v.Err)
}

// Both runs a test once per way, at the same time, and compares what it returns.
func (c Client) Both(t *testing.T, run func(ctl env.Command, way string) (string, error)) {
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
	}{{WaySpoke, c.Spoke}, {WayHub, c.Hub}} {
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
			t.Errorf("%s: %s", c.Name, r.Err)
		}
	}
	if diff := cmp.Diff(results[0].Got, results[1].Got); diff != "" {
		t.Errorf("%s (-spoke +hub):\n%.4000s", c.Name, diff)
	}
}
