// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl is kubectl. It is called hundreds of times by the end-to-end tests, and as
// a part of kube, which starts with the whole of Kubernetes in it, each call would take 0.1 s of
// processor time more.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// Before the command is made: its construction already logs.
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as upstream's main: a bad level is reported by the flag parser
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits with kubectl's own codes
	}
}
