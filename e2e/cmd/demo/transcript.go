// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// step is one line of the transcript.
type step struct {
	say  string            // what a reader is told before it
	on   *clusters.Cluster // the one that kubectl speaks to
	line string            // as a shell takes it, in the checkout
	sets string            // the variable that the line sets, for the lines after it
}

// transcript shows commands as a person would type them, and what they print.
type transcript struct {
	env       *env.Env
	variables []string // NAME=value
}

// play types the lines.
func (t *transcript) play(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		if s.say != "" {
			t.printf("\n# %s\n", s.say)
		}
		t.printf("%s$ %s\n", s.on.Name, s.line)
		out, err := t.shell(ctx, s)
		if err != nil {
			return err
		}
		if s.sets != "" {
			t.variables = append(t.variables, s.sets+"="+strings.TrimSpace(out))
			continue
		}
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n" // what follows begins a line
		}
		t.printf("%s", out)
	}
	return nil
}

// shell runs a line. Its output is the value of the variable if it sets one.
func (t *transcript) shell(ctx context.Context, s step) (string, error) {
	line := s.line
	if s.sets != "" {
		line += ` && echo "$` + s.sets + `"`
	}
	sh := env.Command{Path: "/bin/sh", Args: []string{"-c"}, Dir: t.env.Build.Root}
	sh.Env = append([]string{"PATH=" + t.env.Bin + ":" + os.Getenv("PATH"), "KUBECONFIG=" + s.on.Kubeconfig}, t.variables...)
	return sh.Run(ctx, line)
}

// next says what a reader may type next.
func (t *transcript) next(lines ...string) {
	t.printf("\n# The clusters are up. Type:\n\nexport PATH=%s:$PATH\nexport KUBECONFIG=%s\n\n", t.env.Bin, t.env.Set.Hub().Kubeconfig)
	t.printf("%s\n\nmake demo-down\n", strings.Join(lines, "\n"))
}

// printf prints. A terminal that is gone is none that has to be told.
func (t *transcript) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(t.env.Out, format, args...)
}
