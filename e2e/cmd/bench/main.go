// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures every figure that the design has a budget for, each
// beside its baseline in the same run, prints the table and writes it as JSON.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/bench/install"
	"github.com/spokelet/spokelet/e2e/bench/tunnel"
	"github.com/spokelet/spokelet/e2e/bench/workers"
)

func main() {
	out := flag.String("out", "bench.json", "where the figures are written")
	only := flag.String("only", "", "tunnel, install or workers; empty means all")
	steps := flag.String("steps", "", "a regular expression: the steps of install to run, such as \"^(idle|node .*)$\"; empty means all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *out, *only, *steps)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, only, steps string) error {
	selected, err := regexp.Compile(steps)
	if err != nil {
		return fmt.Errorf("steps: %w", err)
	}
	var figures []figure.Figure
	for _, part := range []struct {
		name string
		run  func() ([]figure.Figure, error)
	}{
		{"tunnel", func() ([]figure.Figure, error) { return tunnel.Run(ctx) }},
		{"install", func() ([]figure.Figure, error) { return install.Run(ctx, os.Stderr, selected) }},
		{"workers", func() ([]figure.Figure, error) { return workers.Run(ctx, os.Stderr) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		got, err := part.run()
		figures = append(figures, got...)
		if err != nil {
			// What was measured until then is still worth reading.
			_ = figure.Print(os.Stdout, figures)
			return err
		}
	}
	if err := figure.Print(os.Stdout, figures); err != nil {
		return err
	}
	return figure.Write(out, figures)
}
