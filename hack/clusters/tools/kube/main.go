// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kube is all of Kubernetes that a cluster for tests needs, in one
// binary: it acts as the program whose name it was started under (a symbolic
// link), the way busybox does. One link of 130 MB instead of six saves most of
// the disk and nearly all of the linking.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata" // CronJobs may name a time zone

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	programs := map[string]func() int{
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
		"kubelet":                 func() int { return cli.Run(newKubelet()) },
		"kubectl":                 runKubectl,
	}
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kube: started as %q; wanted one of %q\n", name, slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	os.Exit(run())
}

// newKubelet hands over a plain context because the kubelet sets up the signal
// handler itself, and doing so twice panics.
func newKubelet() *cobra.Command {
	return kubelet.NewKubeletCommand(context.Background())
}

func runKubectl() int {
	// Before the command is made: its construction already logs.
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as upstream's main: a bad level is reported by the flag parser
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits with kubectl's own codes
	}
	return 0
}
