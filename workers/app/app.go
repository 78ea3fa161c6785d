// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of spokelet-workers: the operator itself
// ("controller"), the API for wrangler ("api"), and the steps of builds ("build fetch", "build
// check", "build push").
package app

import (
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/workers/config"
)

// Version is the version of the build, set by the linker.
var Version = "dev"

// credentialsRoot is the folder below which credentials are mounted.
const credentialsRoot = "/"

// flags are what all commands have.
type flags struct{ config string }

// Command returns the command line.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "spokelet-workers", Short: "Serve Cloudflare Workers in every cluster of a hub", Version: Version, SilenceUsage: true,
	}
	cmd.PersistentFlags().StringVar(&f.config, "config", "/config/config.yaml", "path of the configuration file")
	cmd.AddCommand(controllerCommand(&f), apiCommand(&f), buildCommand(&f))
	return cmd
}

// load reads the file and the credentials.
func (f *flags) load() (config.Config, error) {
	cfg, err := config.Load(f.config)
	if err != nil {
		return config.Config{}, err
	}
	if err := cfg.LoadCredentials(credentialsRoot); err != nil {
		return config.Config{}, fmt.Errorf("below %s: %w", credentialsRoot, err)
	}
	return cfg, nil
}

// logger returns the process's logger, after handing it to the libraries that keep a global
// one.
func logger() logr.Logger {
	log := klog.NewKlogr()
	ctrl.SetLogger(log)
	return log
}
