// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo brings up a hub and two spokes, installs Spokelet on them and
// shows what it does, as a transcript of the commands that a person would
// type. "demo up" leaves the clusters up, "demo workers" adds worker bundles
// with an object store and a registry, for which "demo put" stores scripts,
// and "demo down" removes every trace. Nothing else removes a demo: where one
// is there already, "up" and "workers" say so.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case slices.Equal(args, []string{"up"}):
		return begin(ctx, up)
	case slices.Equal(args, []string{"workers"}):
		return begin(ctx, workers)
	case slices.Equal(args, []string{"down"}):
		return down(ctx)
	case len(args) == 3 && args[0] == "put":
		return put(ctx, args[1], args[2])
	}
	return fmt.Errorf("usage: demo up|workers|down, or demo put FOLDER KEY, got %q", args)
}
