// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-workers is the operator of worker bundles, and the steps of its builds:
// it parses its command line and runs package app.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/workers/app"
)

func main() {
	if err := app.Command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
