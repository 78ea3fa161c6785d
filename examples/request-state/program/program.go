// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program is the command: its flags, and the party that it is run as.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/examples/request-state/director"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned"
	"github.com/spokelet/spokelet/examples/request-state/worker"
)

// The modes.
const (
	Director = "director"
	Worker   = "worker"
)

// Options are the flags.
type Options struct {
	Mode       string
	Namespace  string
	Kubeconfig string
	Master     string
	Delay      time.Duration
	// Request and Cleanup are the director's.
	Request string
	Cleanup bool
}

// Bind makes the options the flags of a set, with their defaults.
func (o *Options) Bind(flags *flag.FlagSet) {
	flags.StringVar(&o.Mode, "mode", Director, "what to be: director or worker")
	flags.StringVar(&o.Namespace, "namespace", "default", "namespace of the requests")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; with neither this nor -master, the cluster that the program runs in")
	flags.StringVar(&o.Master, "master", "", "address of the API server; overrides that of the kubeconfig")
	flags.DurationVar(&o.Delay, "delay", 2*time.Second, "how long each step is pretended to take")
	flags.StringVar(&o.Request, "request", "", "director: continue this request of an earlier director, rather than make one")
	flags.BoolVar(&o.Cleanup, "cleanup", false, "director: delete the request when it is finished")
}

// Validate refuses what would otherwise be ignored.
func (o *Options) Validate() error {
	switch {
	case o.Mode != Director && o.Mode != Worker:
		return fmt.Errorf("mode %q: neither %s nor %s", o.Mode, Director, Worker)
	case o.Namespace == "":
		return errors.New("namespace: must not be empty")
	case o.Delay < 0:
		return fmt.Errorf("delay %s: must not be negative", o.Delay)
	case o.Mode == Worker && (o.Request != "" || o.Cleanup):
		return errors.New("request and cleanup: are for the director alone")
	}
	return nil
}

// Config says how to reach the cluster.
func (o *Options) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags(o.Master, o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	// The defaults would make a worker with several requests wait for itself.
	config.QPS, config.Burst = 50, 100
	return config, nil
}

// Run is the director until its request is finished, or the worker until the context ends.
func Run(ctx context.Context, config *rest.Config, o Options, log klog.Logger) error {
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if o.Mode == Worker {
		w := worker.Worker{Client: client, Namespace: o.Namespace, Delay: o.Delay, Log: log}
		return w.Run(ctx)
	}
	d := director.Director{
		Client: client, Namespace: o.Namespace, Request: o.Request, Delay: o.Delay, Cleanup: o.Cleanup, Log: log,
	}
	return d.Run(ctx)
}
