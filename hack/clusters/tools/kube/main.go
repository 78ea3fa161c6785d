// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kube is all of Kubernetes that a cluster for tests is made of, in one
// binary: it acts as the program whose name it was started under (a symbolic
// link), the way busybox does. One link of 130 MB instead of five saves most of
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
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	programs := map[string]func() int{
		"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
		"kubelet":                 func() int { return cli.Run(newKubelet()) },
		"kubeadm": func() int {
			kubeadmerrors.HandleError(kubeadm.Run()) // ends the process if there is one
			return 0
		},
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
