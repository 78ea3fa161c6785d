// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-hub is the hub: it parses its command line and runs
// package hub.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/cmd/internal/command"
	"github.com/spokelet/spokelet/hub"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	flags := command.Flags{Config: "/etc/spokelet/config.yaml"}
	var nodeAddress string
	cmd := &cobra.Command{
		Use:          "spokelet-hub",
		Short:        "Make every joined cluster a live node of this one",
		Version:      command.Version,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := options(flags, nodeAddress)
			if err != nil {
				return err
			}
			return hub.Run(cmd.Context(), opts)
		},
	}
	flags.Bind(cmd.Flags())
	cmd.Flags().StringVar(&nodeAddress, "node-address", "", "IP that the API server dials for virtual nodes; wins over nodes.address of the file")
	cmd.AddCommand(command.Probe())
	return cmd
}

func options(flags command.Flags, nodeAddress string) (hub.Options, error) {
	data, err := os.ReadFile(flags.Config)
	if err != nil {
		return hub.Options{}, fmt.Errorf("configuration: %w", err)
	}
	cfg, err := v1alpha1.ParseHub(data, func(c *v1alpha1.HubConfiguration) {
		if nodeAddress != "" {
			c.Nodes.Address = nodeAddress
		}
	})
	if err != nil {
		return hub.Options{}, err
	}
	client, err := flags.Client("spokelet-hub")
	if err != nil {
		return hub.Options{}, err
	}
	return hub.Options{Config: cfg, Client: client, Logger: command.Logger(), Version: command.Version}, nil
}
