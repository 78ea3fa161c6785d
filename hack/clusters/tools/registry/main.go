// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command registry is the registry of the CNCF project Distribution, with its own
// command line. It keeps images in a directory: all other stores are left out, with whose
// clients it takes twice as long to build.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"             // users of a file
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the directory
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
