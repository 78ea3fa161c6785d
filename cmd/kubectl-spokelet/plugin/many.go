// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// inFlight is how many clusters are worked on at once. Beyond this the hub's API server
// is no faster, and others wait longer for it.
const inFlight = 32

var (
	// errPartial says that of several clusters some failed. Why is printed for each.
	errPartial = errors.New("some clusters failed")
	// errNotPrinted says that a cluster's work is done, and its output lost.
	errNotPrinted = errors.New("done, but its output could not be written")
)

// selection is the clusters that a command is for.
type selection struct {
	names []string
	// many: a file was given, or several names. Output and exit code are then those of
	// several clusters, however many lines the file has.
	many bool
}

// selectClusters returns the clusters of a command's arguments, then those of a file, a
// line each; "-" is stdin. None is there twice.
func (s *session) selectClusters(args []string, file string) (selection, error) {
	names := args
	if file != "" {
		listed, err := s.readNames(file)
		if err != nil {
			return selection{}, fmt.Errorf("names of clusters: %w", err)
		}
		names = append(slices.Clip(names), listed...)
	}
	if len(names) == 0 {
		return selection{}, fmt.Errorf("%w: no cluster is named", errUsage)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			return selection{}, fmt.Errorf("%w: cluster %q is named twice", errUsage, name)
		}
		seen[name] = true
	}
	return selection{names: names, many: len(names) > 1 || file != ""}, nil
}

// readNames leaves out empty lines and those that begin with "#".
func (s *session) readNames(file string) (names []string, err error) {
	in := s.In
	if file != "-" {
		opened, err := os.Open(file) //nolint:gosec // the user names it
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }()
		in = opened
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if name := strings.TrimSpace(lines.Text()); name != "" && !strings.HasPrefix(name, "#") {
			names = append(names, name)
		}
	}
	return names, lines.Err()
}

// outcome is what became of one cluster, and what was printed of it.
type outcome struct {
	index    int
	begun    bool // run was called: something may have been changed
	out, err bytes.Buffer
	failure  error
}

// forEachCluster runs a function for clusters, many at once. What is printed comes in the
// order in which they are named. One that fails does not stop the others, unless its output
// cannot be written: the output of the others, tokens for instance, would be lost as well.
// done is what has been done to those that did not fail, for the line that shows how far it
// is.
func (s *session) forEachCluster(ctx context.Context, done string, of selection, run func(context.Context, *session, string) error) error {
	if !of.many {
		return run(ctx, s, of.names[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan *outcome)
	go s.runAll(ctx, of.names, run, finished)
	outcomes, next, failed := make([]*outcome, len(of.names)), 0, 0
	out := bufio.NewWriter(s.Out) // fails for good once a write has failed
	for n := range of.names {
		o := <-finished
		outcomes[o.index] = o
		if o.failure != nil {
			failed++
		}
		for ; next < len(of.names) && outcomes[next] != nil; next++ {
			if !s.show(out, of.names[next], outcomes[next]) {
				cancel()
				failed++
			}
			outcomes[next] = nil // what a fleet prints is long
		}
		s.showProgress(done, n+1-failed, len(of.names), failed)
	}
	s.clearProgress()
	return partial(failed, len(of.names), out.Flush())
}

// partial is the error of clusters of which some failed. broken is why output could not be
// written, if it could not.
func partial(failed, of int, broken error) error {
	switch {
	case broken != nil:
		return fmt.Errorf("%w: %d of %d: %w", errPartial, failed, of, broken)
	case failed > 0:
		return fmt.Errorf("%w: %d of %d", errPartial, failed, of)
	}
	return nil
}

// runAll runs a function for each cluster, some at a time, and hands each outcome to finished.
func (s *session) runAll(ctx context.Context, names []string, run func(context.Context, *session, string) error, finished chan<- *outcome) {
	places := make(chan struct{}, inFlight)
	for i, name := range names {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			o := &outcome{index: i, failure: ctx.Err()}
			own := *s
			own.Out, own.ErrOut = &o.out, &o.err
			if o.failure == nil {
				o.begun = true
				o.failure = run(ctx, &own, name)
			}
			finished <- o
		}()
	}
}

// show prints what one cluster had printed, and why it failed. That the command ended
// before a cluster had begun is no news of that cluster; one that had begun may be half
// changed. It returns false when the work was done and its output could not be written.
func (s *session) show(out *bufio.Writer, name string, o *outcome) bool {
	s.clearProgress()
	_, _ = o.out.WriteTo(out)
	lost := out.Flush() != nil && o.failure == nil
	if lost {
		o.failure = errNotPrinted
	}
	_, _ = o.err.WriteTo(s.ErrOut)
	if o.failure != nil && (o.begun || !errors.Is(o.failure, context.Canceled)) {
		printError(s.ErrOut, fmt.Errorf("cluster %q: %w", name, o.failure))
	}
	return !lost
}

// clearLine brings the cursor of a terminal to the begin of its line, and clears that.
const clearLine = "\r\x1b[K"

func (s *session) showProgress(done string, n, of, failed int) {
	if !s.terminal {
		return
	}
	text := fmt.Sprintf("%s %d of %d", done, n, of)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	_, _ = fmt.Fprint(s.ErrOut, clearLine+text)
}

func (s *session) clearProgress() {
	if s.terminal {
		_, _ = fmt.Fprint(s.ErrOut, clearLine)
	}
}

// isTerminal reports whether a writer is a terminal, or another device: on none is a
// line that is written over in the way of a program.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
