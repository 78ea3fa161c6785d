// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl129 is kubectl of Kubernetes 1.29, the last release whose exec,
// attach and port-forward all speak SPDY unless they are told otherwise.
package main

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits with kubectl's own codes
	}
}
