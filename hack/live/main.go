// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command live knows the tests of a module that need a real cluster. Such a test skips itself
// where the variable that names its cluster is not set, so a run that merely did not fail
// proves nothing.
//
//	live list           prints a line for each package that has some: its folder, then their names
//	live check FILE...  fails unless each of them ran and passed, by the events of go test (test2json)
//
// It finds them in the source, beneath the working directory: a test is live when it, or a
// function of its package that it calls, reads one of the variables.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var errUsage = errors.New("usage: live list | live check FILE [FILE ...]")

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	tests, err := find(os.DirFS("."))
	if err != nil {
		return err
	}
	if len(tests) == 0 {
		return fmt.Errorf("no test reads %s*%s", prefix, suffix)
	}
	switch {
	case args[0] == "list" && len(args) == 1:
		for _, dir := range slices.Sorted(maps.Keys(tests)) {
			if _, err := fmt.Fprintln(out, "./"+dir, strings.Join(tests[dir], " ")); err != nil {
				return err
			}
		}
		return nil
	case args[0] == "check" && len(args) > 1:
		return check(tests, args[1:])
	}
	return errUsage
}

// check reads the events of one or more runs, each test's last word counting.
func check(tests map[string][]string, files []string) error {
	v := verdict{}
	for _, name := range files {
		file, err := os.Open(filepath.Clean(name))
		if err != nil {
			return err
		}
		err = errors.Join(v.read(file), file.Close())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return v.complete(tests)
}
