// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command spokelet-workers is the operator of worker bundles, and the steps of its builds:
// it parses its command line and runs package program.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/spokelet/spokelet/workers/program"
)

func main() {
	if err := program.Command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
