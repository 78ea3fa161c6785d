// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo brings up a hub and two spokes, installs Spokelet on them and
// shows what it does, as a transcript of the commands that a person would
// type. "demo up" leaves the clusters up, "demo down" removes every trace.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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
	if len(args) == 1 && args[0] == "up" {
		return up(ctx)
	}
	if len(args) == 1 && args[0] == "down" {
		return down(ctx)
	}
	return fmt.Errorf("usage: demo up|down, got %q", args)
}
