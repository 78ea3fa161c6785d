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

// errThere: somebody may be at work on it, in another checkout, too.
var errThere = errors.New("there is a demo already on this machine, and it is left as it is; make demo-down removes it")

// begin plays a demo where there is none.
func begin(ctx context.Context, play func(context.Context) error) error {
	if err := vacant(ctx, config()); err != nil {
		return err
	}
	return play(ctx)
}

// vacant returns an error if there is a demo. Clusters that were not finished are none: the
// next ones take their place.
func vacant(ctx context.Context, config clusters.Config) error {
	set, err := clusters.Open(ctx, config)
	switch {
	case errors.Is(err, clusters.ErrNotFound), errors.Is(err, clusters.ErrIncomplete):
		return nil
	case err != nil:
		return fmt.Errorf("%w (%w)", errThere, err)
	case set.Provider() == clusters.Existing:
		return nil
	default:
		return fmt.Errorf("%w. To look at it: export KUBECONFIG=%s", errThere, set.Hub().Kubeconfig)
	}
}

// raise makes the clusters and installs Spokelet on them.
func raise(ctx context.Context) (*env.Env, error) {
	fmt.Println("# Clusters: a hub that cannot dial its spokes, and two spokes.")
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
