// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command live runs the tests that need a real cluster, and fails unless every
// one of them ran and passed. Such a test skips itself where the variable that
// names its cluster is not set, so a run that merely did not fail proves nothing.
//
// It finds them in the source, beneath the working directory: a test is live
// when it, or a function of its package that it calls, reads one of the
// variables. The arguments are those of go test, but that the first may be --in=DIR or
// --not-in=DIR: only the tests below a folder are run, or all others.
package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	tests, err := find(os.DirFS("."))
	if err != nil {
		return err
	}
	args = narrow(tests, args)
	if len(tests) == 0 {
		return fmt.Errorf("no test reads %s*%s", prefix, suffix)
	}
	cmd := exec.CommandContext(ctx, "go", goTest(tests, args)...) //nolint:gosec // its arguments are the developer's
	cmd.Stderr = os.Stderr
	// go test passes an interrupt on to the tests, which then clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	v, err := judge(events, out)
	if failed := cmd.Wait(); err == nil && failed != nil {
		err = fmt.Errorf("go test: %w", failed)
	}
	if err != nil {
		return err
	}
	return v.complete(tests)
}

// goTest is the command line of go that runs the tests. Those of one package may take
// longer on a slow machine than the 10 minutes that go test has for them by default; the
// arguments may say otherwise.
func goTest(tests map[string][]string, args []string) []string {
	names := map[string]bool{}
	var dirs []string
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		dirs = append(dirs, "./"+dir)
		for _, name := range tests[dir] {
			names[name] = true
		}
	}
	pattern := "-run=^(" + strings.Join(slices.Sorted(maps.Keys(names)), "|") + ")$"
	return slices.Concat([]string{"test", pattern, "-json", "-count=1", "-timeout=17m"}, args, dirs)
}

// narrow leaves the tests of the folders that the first argument asks for, and returns
// the other arguments.
func narrow(tests map[string][]string, args []string) []string {
	if len(args) == 0 {
		return args
	}
	top, in := strings.CutPrefix(args[0], "--in=")
	if !in {
		var notIn bool
		if top, notIn = strings.CutPrefix(args[0], "--not-in="); !notIn {
			return args
		}
	}
	maps.DeleteFunc(tests, func(dir string, _ []string) bool {
		return strings.HasPrefix(dir+"/", top+"/") != in
	})
	return args[1:]
}
