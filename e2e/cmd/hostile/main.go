// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hostile is a spoke that means its hub harm: an agent without a cluster. It
// reads its invitation from standard input, the JSON that "kubectl spokelet join -o
// json" prints in one line, and then one order a line; it ends when its input does.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := spoke.Serve(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}
