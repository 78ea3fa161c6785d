// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command images builds the images of the hub and the agent as archives in
// bin/images, without Docker, and prints the reference and the archive of each. Those for
// tests carry the race detector.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spokelet/spokelet/e2e/env"
)

func main() {
	version := flag.String("version", "unknown", "links `version` into the binaries and tags the images with it")
	race := flag.Bool("race", false, "build the hub and the agent with the race detector")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, env.Build{Version: *version, Race: *race})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, build env.Build) error {
	root, err := env.Root()
	if err != nil {
		return err
	}
	build.Root = root
	for _, write := range []func(context.Context) (env.Image, error){
		func(ctx context.Context) (env.Image, error) { return build.Image(ctx, "spokelet-hub") },
		func(ctx context.Context) (env.Image, error) { return build.Image(ctx, "spokelet-agent") },
		build.WorkersImage, build.WorkerdImage,
	} {
		image, err := write(ctx)
		if errors.Is(err, env.ErrNoWorkerd) {
			fmt.Fprintln(os.Stderr, "images: left out:", err)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println(image.Ref, image.Archive)
	}
	return nil
}
