// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-helm does one thing with one release, for the agent that started it. It
// is no use by itself: see package message.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spokelet/spokelet/helm/process"
)

func main() {
	if err := process.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "spokelet-helm:", err)
		os.Exit(1)
	}
}
