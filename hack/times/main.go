// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command times measures where the time of a run of the tests goes. It writes and reads one
// folder:
//
//	times record DIR              samples the machine's processors each second, into DIR/cpu, until it is ended
//	times run DIR NAME COMMAND... runs a command as a phase, and adds how long it took to DIR/phases
//	times report [--write FILE] DIR
//
// The report is Markdown, of the samples, the phases and the events of go test
// (DIR/*.json, test2json's format, as gotestsum --jsonfile writes them). With --write it
// replaces what stands in a file between its two markers.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

var errUsage = errors.New("usage: times record DIR | times run DIR NAME COMMAND... | times report [--write FILE] DIR")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() > 0 {
		os.Exit(failed.ExitCode()) // the command has said why
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "record":
		return record(ctx, args[1], time.Second)
	case len(args) > 3 && args[0] == "run":
		return runPhase(ctx, args[1], args[2], args[3:])
	case len(args) == 2 && args[0] == "report":
		return report(out, args[1])
	case len(args) == 4 && args[0] == "report" && args[1] == "--write":
		return write(args[2], args[3])
	}
	return errUsage
}

// The markers of the report in a document.
const (
	begin = "<!-- times: begin -->\n"
	end   = "<!-- times: end -->\n"
)

// write replaces what stands between the markers of a file.
func write(file, dir string) error {
	var text bytes.Buffer
	if err := report(&text, dir); err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(content, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return fmt.Errorf("%s: has no lines %q and %q", file, begin, end)
	}
	content = bytes.Join([][]byte{before, []byte(begin), text.Bytes(), []byte(end), after}, nil)
	return os.WriteFile(file, content, 0o644) //nolint:gosec // a document of the repository
}
