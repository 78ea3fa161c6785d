// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spokelet/spokelet/hack/clusters"
	"github.com/spokelet/spokelet/hack/clusters/image"
	"github.com/spokelet/spokelet/hack/clusters/toolchain"
)

// options are the flags that all commands share.
type options struct {
	config   clusters.Config
	provider string
	out      io.Writer
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	o := &options{out: stdout}
	root := &cobra.Command{
		Use:           "clusters",
		Short:         "Kubernetes clusters for development and tests: a hub and spokes",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			o.config.Provider = clusters.Provider(o.provider)
			o.config.Log = slog.New(slog.NewTextHandler(stderr, nil))
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.config.Name, "name", "spokelet", "name of the set; sets of different names coexist")
	flags.StringVar(&o.provider, "provider", "", "kind, netns, controlplane or existing; default: what the machine can run")
	root.AddCommand(
		o.prepareCommand(), o.upCommand(), o.downCommand(), o.statusCommand(), o.kubeconfigCommand(), o.loadCommand(),
		o.cutCommand(), o.healCommand(), o.apiServerCommand(), o.execCommand(), o.binCommand(), o.imageCommand(),
	)
	return root
}

func (o *options) prepareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prepare",
		Short: "Install and build what sets are made of, so that up does not",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return clusters.Prepare(cmd.Context(), o.config) },
	}
}

func (o *options) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the set, or find it healthy",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := clusters.Up(cmd.Context(), o.config)
			if err != nil {
				return err
			}
			return o.print(set)
		},
	}
	cmd.Flags().IntVar(&o.config.Spokes, "spokes", 2, "number of spokes")
	return cmd
}

func (o *options) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the set and every trace of it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return clusters.Down(cmd.Context(), o.config) },
	}
}

func (o *options) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the set and whether it works",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			return errors.Join(o.print(set), set.Healthy(cmd.Context()))
		},
	}
}

func (o *options) kubeconfigCommand() *cobra.Command {
	var content bool
	cmd := &cobra.Command{
		Use:   "kubeconfig CLUSTER",
		Short: "Print the path of a cluster's kubeconfig (hub, spoke1, ...)",
		Args:  cobra.ExactArgs(1),
		RunE: o.onCluster(func(_ context.Context, _ *clusters.Set, c *clusters.Cluster, _ []string) error {
			if !content {
				_, err := fmt.Fprintln(o.out, c.Kubeconfig)
				return err
			}
			text, err := os.ReadFile(c.Kubeconfig)
			if err != nil {
				return err
			}
			_, err = o.out.Write(text)
			return err
		}),
	}
	cmd.Flags().BoolVar(&content, "content", false, "print the file itself")
	return cmd
}

func (o *options) loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load TARBALL...",
		Short: "Load images into every cluster of the set",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, tarballs []string) error {
			set, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			for _, c := range append(set.Spokes(), set.Hub()) {
				for _, tarball := range tarballs {
					if err := c.LoadImage(cmd.Context(), tarball); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

func (o *options) cutCommand() *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:   "cut SPOKE",
		Short: "Break the network between a spoke and the hub",
		Args:  cobra.ExactArgs(1),
		RunE: o.onCluster(func(ctx context.Context, set *clusters.Set, c *clusters.Cluster, _ []string) error {
			return set.Cut(ctx, c, clusters.Mode(mode))
		}),
	}
	cmd.Flags().StringVar(&mode, "mode", string(clusters.Drop), fmt.Sprintf("how: one of %v", clusters.Modes()))
	return cmd
}

func (o *options) healCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "heal SPOKE",
		Short: "Mend what cut broke",
		Args:  cobra.ExactArgs(1),
		RunE: o.onCluster(func(ctx context.Context, set *clusters.Set, c *clusters.Cluster, _ []string) error {
			return set.Heal(ctx, c)
		}),
	}
}

func (o *options) apiServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "apiserver CLUSTER start|stop",
		Short:     "Start or stop a cluster's API server",
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"start", "stop"},
		RunE: o.onCluster(func(ctx context.Context, _ *clusters.Set, c *clusters.Cluster, args []string) error {
			switch args[0] {
			case "start":
				return c.StartAPIServer(ctx)
			case "stop":
				return c.StopAPIServer(ctx)
			}
			return fmt.Errorf("%q: %w: want start or stop", args[0], clusters.ErrConfig)
		}),
	}
}

func (o *options) execCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec CLUSTER -- COMMAND [ARG...]",
		Short: "Run a command in a cluster's network",
		Args:  cobra.MinimumNArgs(2),
		RunE: o.onCluster(func(ctx context.Context, _ *clusters.Set, c *clusters.Cluster, args []string) error {
			cmd, err := c.Command(ctx, args[0], args[1:]...)
			if err != nil {
				return err
			}
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, o.out, os.Stderr
			return cmd.Run()
		}),
	}
}

func (o *options) binCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "bin PROGRAM",
		Short:     "Print the path of a program, building it when needed: " + strings.Join(toolchain.Programs(), ", "),
		Args:      cobra.ExactArgs(1),
		ValidArgs: toolchain.Programs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := toolchain.New(o.config.Log).Program(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(o.out, path)
			return err
		},
	}
}

func (o *options) imageCommand() *cobra.Command {
	var (
		spec  image.Spec
		files []string
		out   string
	)
	cmd := &cobra.Command{
		Use:   "image --ref REF --file /PATH=SOURCE... --out TARBALL",
		Short: "Write a container image without a container engine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, file := range files {
				path, source, found := strings.Cut(file, "=")
				if !found {
					return fmt.Errorf("--file %q: %w: want /path/in/image=source", file, image.ErrSpec)
				}
				spec.Files = append(spec.Files, image.File{Path: path, Source: filepath.Clean(source)})
			}
			return image.Write(out, spec)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&spec.Ref, "ref", "", "reference of the image, like spokelet.io/hub:dev")
	flags.StringArrayVar(&files, "file", nil, "a file of the image, as /path/in/image=source")
	flags.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "the entrypoint; once for each word")
	flags.StringArrayVar(&spec.Env, "env", nil, "an environment variable, as NAME=value")
	flags.StringVar(&spec.User, "user", "65532", "user, by number")
	flags.StringVar(&spec.Architecture, "arch", "", "architecture; default: this machine's")
	flags.StringVar(&out, "out", "", "the tarball to write")
	for _, name := range []string{"ref", "out"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a misspelt name, which every run would show
		}
	}
	return cmd
}

func (o *options) open(ctx context.Context) (*clusters.Set, error) {
	return clusters.Open(ctx, o.config)
}

// onCluster runs a function on the cluster that the first argument names.
func (o *options) onCluster(
	fn func(ctx context.Context, set *clusters.Set, c *clusters.Cluster, rest []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		set, err := o.open(cmd.Context())
		if err != nil {
			return err
		}
		c, err := set.Cluster(args[0])
		if err != nil {
			return err
		}
		return fn(cmd.Context(), set, c, args[1:])
	}
}

func (o *options) print(set *clusters.Set) error {
	if _, err := fmt.Fprintf(o.out, "PROVIDER  %s\n", set.Provider()); err != nil {
		return err
	}
	for _, c := range append([]*clusters.Cluster{set.Hub()}, set.Spokes()...) {
		if _, err := fmt.Fprintf(o.out, "%-8s  %-15s  %s\n", c.Name, c.Address, c.Kubeconfig); err != nil {
			return err
		}
	}
	return nil
}
