// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

// setName keeps the demo's clusters apart from the tests'.
const setName = "demo"

// folder is where the demo writes, below the checkout.
const folder = "bin/demo"

func config() clusters.Config {
	return clusters.Config{Name: setName, Spokes: 2, Log: env.Progress(os.Stdout)}
}

func build() env.Build { return env.Build{Version: "demo"} }

// raise makes the clusters and installs Spokelet on them.
func raise(ctx context.Context) (*env.Env, error) {
	fmt.Println("# Clusters: a hub that cannot dial its spokes, and two spokes.")
	// A demo begins with nothing, also after one that was interrupted.
	if err := down(ctx); err != nil {
		return nil, err
	}
	set, err := clusters.Up(ctx, config())
	if err != nil {
		return nil, err
	}
	e, err := env.New(ctx, set, build(), os.Stdout)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(e.Build.Root, folder), 0o755); err != nil {
		return nil, fmt.Errorf("folder of the demo: %w", err)
	}
	return e, install(ctx, e)
}

// reach finds the clusters of a demo that is up.
func reach(ctx context.Context) (*env.Env, error) {
	set, err := clusters.Open(ctx, config())
	if err != nil {
		return nil, err
	}
	return env.New(ctx, set, build(), os.Stdout)
}

func down(ctx context.Context) error {
	root, err := env.Root()
	if err != nil {
		return err
	}
	return errors.Join(clusters.Down(ctx, config()), os.RemoveAll(filepath.Join(root, folder)))
}

func install(ctx context.Context, e *env.Env) error {
	fmt.Println("\n# The hub, installed with helm.")
	if err := e.InstallHub(ctx); err != nil {
		return err
	}
	for _, spoke := range e.Set.Spokes() {
		fmt.Printf("\n# %s joins: the hub prints a helm line, the spoke runs it.\n", spoke.Name)
		// Its owner passes on the group that "demo up" asks for a view in.
		if err := e.Join(ctx, spoke, "--set", "kube.groups={platform}"); err != nil {
			return err
		}
	}
	return nil
}
