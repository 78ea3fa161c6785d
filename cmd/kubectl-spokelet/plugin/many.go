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

// errSome says that of several clusters some failed. Why is printed for each.
var errSome = errors.New("not all is done")

// namesOf returns the clusters that a command is for: those of its arguments, then those
// of a file, a line each; "-" is stdin. None is there twice.
func (s *session) namesOf(args []string, file string) ([]string, error) {
	names := args
	if file != "" {
		listed, err := s.readNames(file)
		if err != nil {
			return nil, fmt.Errorf("names of clusters: %w", err)
		}
		names = append(slices.Clip(names), listed...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no cluster is named", errUsage)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if seen[name] {
			return nil, fmt.Errorf("%w: cluster %q is named twice", errUsage, name)
		}
		seen[name] = true
	}
	return names, nil
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
	out, err bytes.Buffer
	failure  error
}

// each has work done for clusters, many at once. What is printed comes in the order in
// which they are named. One that fails does not stop the others. done is what has been
// done to those that did not, for the line that shows how far it is.
func (s *session) each(ctx context.Context, done string, names []string, work func(context.Context, *session, string) error) error {
	if len(names) == 1 {
		return work(ctx, s, names[0])
	}
	finished := make(chan *outcome)
	go s.start(ctx, names, work, finished)
	outcomes, next, failed := make([]*outcome, len(names)), 0, 0
	var broken error
	for n := range names {
		o := <-finished
		outcomes[o.index] = o
		if o.failure != nil {
			failed++
		}
		for ; next < len(names) && outcomes[next] != nil; next++ {
			broken = errors.Join(broken, s.show(names[next], outcomes[next]))
			outcomes[next] = nil // what a fleet prints is long
		}
		s.showProgress(done, n+1-failed, len(names), failed)
	}
	s.clearProgress()
	if failed > 0 {
		return errors.Join(broken, fmt.Errorf("%w: %d of %d clusters failed", errSome, failed, len(names)))
	}
	return broken
}

// start hands each outcome to finished.
func (s *session) start(ctx context.Context, names []string, work func(context.Context, *session, string) error, finished chan<- *outcome) {
	places := make(chan struct{}, inFlight)
	for i, name := range names {
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			o := &outcome{index: i, failure: ctx.Err()}
			own := *s
			own.Out, own.ErrOut = &o.out, &o.err
			if o.failure == nil {
				o.failure = work(ctx, &own, name)
			}
			finished <- o
		}()
	}
}

// show prints what one cluster had printed, and why it failed. That somebody ended the
// command is no news of each.
func (s *session) show(name string, o *outcome) error {
	s.clearProgress()
	_, err := o.out.WriteTo(s.Out)
	_, _ = o.err.WriteTo(s.ErrOut)
	if o.failure != nil && !errors.Is(o.failure, context.Canceled) {
		printError(s.ErrOut, fmt.Errorf("cluster %q: %w", name, o.failure))
	}
	return err
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
