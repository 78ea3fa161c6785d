// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-spokelet is a kubectl plugin for those who run a hub.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 gave up waiting, 4 not found.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the kubeconfigs of clouds

	"github.com/spokelet/spokelet/cmd/kubectl-spokelet/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A read of a terminal does not end with ctx. Once a signal was seen, the next one ends
	// the process.
	context.AfterFunc(ctx, stop)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := plugin.Run(ctx, plugin.New(streams), os.Args[1:])
	stop()
	os.Exit(code)
}
