// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/spokelet/spokelet/workers/build"
	"github.com/spokelet/spokelet/workers/registry"
	"github.com/spokelet/spokelet/workers/store"
)

// terminationMessagePath is where the kubelet reads what a container says at its end.
const terminationMessagePath = "/dev/termination-log"

// confine is the command that a process becomes workerd by; it is no command for people.
const confineCommand = "confine"

var (
	errNotSynced = errors.New("the objects of the hub are not known yet")
	// errNoImage ends a step whose result says why there is no image.
	errNoImage = errors.New("there is no image")
)

// buildFlags are those of the steps of a build.
type buildFlags struct {
	*flags

	input, dir, terminationMessage string
}

func buildCommand(f *flags) *cobra.Command {
	b := buildFlags{flags: f}
	cmd := &cobra.Command{Use: "build", Short: "Run one step of a build, in its Job"}
	set := cmd.PersistentFlags()
	set.StringVar(&b.input, "input", "/input/bundle.json", "path of what is to be built")
	set.StringVar(&b.dir, "dir", "/work", "folder that the steps share")
	set.StringVar(&b.terminationMessage, "message", terminationMessagePath, "path that the result is written to")
	step := func(name, short string, run func(context.Context) (build.Result, error)) *cobra.Command {
		return &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return b.writeResult(run(cmd.Context()))
		}}
	}
	cmd.AddCommand(
		step("fetch", "Read the scripts from the object store", b.fetch),
		step("check", "Have workerd load each script, without a network", b.check),
		step("push", "Write the image to the registry", b.push),
		&cobra.Command{
			Use: confineCommand, Hidden: true, Args: cobra.ExactArgs(1), SilenceErrors: true,
			RunE: func(_ *cobra.Command, args []string) error { return build.Confine(args) },
		},
	)
	return cmd
}

// writeResult writes the result of a step. A result without an image is an error, too, so that the
// next step does not run.
func (b *buildFlags) writeResult(result build.Result, err error) error {
	if err != nil {
		result = build.FailedResult(err)
	}
	if result.Image == "" && result.Failure == nil && len(result.Rejected) == 0 {
		return nil
	}
	if err := result.Write(b.terminationMessage); err != nil {
		return err
	}
	if result.Image == "" {
		return fmt.Errorf("%w: %s", errNoImage, result.Encode())
	}
	return nil
}

func (b *buildFlags) fetch(ctx context.Context) (build.Result, error) {
	cfg, err := b.load()
	if err != nil {
		return build.Result{}, err
	}
	objects, err := store.New(cfg.Store.Config)
	if err != nil {
		return build.Result{}, err
	}
	defer objects.Close()
	return build.Result{}, build.Fetch(ctx, build.FetchConfig{Input: b.input, Work: b.dir, Store: objects, MaxBytes: cfg.Store.MaxBytes})
}

func (b *buildFlags) check(ctx context.Context) (build.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return build.Result{}, fmt.Errorf("this program: %w", err)
	}
	rejected, err := build.Check(ctx, build.CheckConfig{Input: b.input, Work: b.dir, Confine: []string{self, "build", confineCommand}})
	return build.Result{Rejected: rejected}, err
}

func (b *buildFlags) push(ctx context.Context) (build.Result, error) {
	cfg, err := b.load()
	if err != nil {
		return build.Result{}, err
	}
	images, err := registry.New(cfg.Registry.Config)
	if err != nil {
		return build.Result{}, err
	}
	image, err := build.Push(ctx, build.PushConfig{Input: b.input, Work: b.dir, Registry: images})
	return build.Result{Image: image}, err
}
