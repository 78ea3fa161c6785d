// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command request-state is the director or the worker of the example.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/examples/request-state/program"
)

func main() {
	var o program.Options
	o.Bind(flag.CommandLine)
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "request-state:", err)
		os.Exit(1)
	}
}

func run(o program.Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return program.Run(ctx, config, o, klog.Background())
}
