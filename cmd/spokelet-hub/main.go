// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-hub is the hub: it parses its command line and runs
// package hub.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/hub"
	"github.com/spokelet/spokelet/internal/command"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	flags := command.Flags{Config: "/etc/spokelet/config.yaml"}
	var override overrides
	cmd := &cobra.Command{
		Use:          "spokelet-hub",
		Short:        "Make every joined cluster a live node of this one",
		Version:      command.Version,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := options(flags, override)
			if err != nil {
				return err
			}
			return hub.Run(cmd.Context(), opts)
		},
	}
	flags.Bind(cmd.Flags())
	override.bind(cmd.Flags())
	cmd.AddCommand(command.Probe())
	return cmd
}

// overrides are the flags that win over the file.
type overrides struct {
	nodeAddress   string
	manifestLimit int
}

func (o *overrides) bind(set *pflag.FlagSet) {
	set.StringVar(&o.nodeAddress, "node-address", "", "IP that the API server dials for virtual nodes; wins over nodes.address of the file")
	set.IntVar(&o.manifestLimit, "manifest-limit", 0, "bytes that the manifests of one ManifestWork may have; wins over admission.manifestLimit of the file")
}

func (o *overrides) apply(c *v1alpha1.HubConfiguration) {
	if o.nodeAddress != "" {
		c.Nodes.Address = o.nodeAddress
	}
	if o.manifestLimit != 0 {
		c.Admission.ManifestLimit = o.manifestLimit
	}
}

func options(flags command.Flags, override overrides) (hub.Options, error) {
	data, err := os.ReadFile(flags.Config)
	if err != nil {
		return hub.Options{}, fmt.Errorf("configuration: %w", err)
	}
	cfg, err := v1alpha1.ParseHub(data, override.apply)
	if err != nil {
		return hub.Options{}, err
	}
	client, err := flags.Client("spokelet-hub")
	if err != nil {
		return hub.Options{}, err
	}
	return hub.Options{Config: cfg, Client: client, Logger: command.Logger(), Version: command.Version}, nil
}
