// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-agent is the spoke's side: it parses its command line and
// runs package agent.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/agent"
	"github.com/spokelet/spokelet/agent/workagent"
	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/internal/command"
	"github.com/spokelet/spokelet/tunnel/identity"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cmd := subcommand("spokelet-agent", "Make this cluster a live node of its hub", agent.Run)
	cmd.Version = command.Version
	cmd.AddCommand(
		subcommand("uninstall", "Stop the agent, let go of what it applied, and remove its traces", agent.Uninstall),
		workagent.Command(processName),
		command.Probe(),
	)
	return cmd
}

func subcommand(use, short string, run func(context.Context, agent.Options) error) *cobra.Command {
	flags := command.Flags{Config: "/etc/spokelet/config/config.yaml"}
	cmd := &cobra.Command{
		Use:          use,
		Short:        short,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := options(flags)
			if err != nil {
				return err
			}
			return run(cmd.Context(), opts)
		},
	}
	flags.Bind(cmd.Flags())
	return cmd
}

func options(flags command.Flags) (agent.Options, error) {
	data, err := os.ReadFile(flags.Config)
	if err != nil {
		return agent.Options{}, fmt.Errorf("configuration: %w", err)
	}
	cfg, err := v1alpha1.ParseAgent(data)
	if err != nil {
		return agent.Options{}, err
	}
	client, err := flags.Client("spokelet-agent")
	if err != nil {
		return agent.Options{}, err
	}
	return agent.Options{
		Config: cfg, Client: client, Logger: command.Logger(), Version: command.Version, Process: processName(),
	}, nil
}

// processName is the pod's name, which a container that crashed and comes back
// keeps. Outside a pod no other process may have the name, not even the next one
// on the same machine.
func processName() string {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod
	}
	return identity.NewID()
}
