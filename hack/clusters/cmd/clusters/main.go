// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clusters makes, inspects, breaks and removes the clusters of package
// clusters, from the command line.
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
	err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}
