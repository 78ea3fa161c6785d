// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command holds what the two long-running binaries have in common on
// their command lines: logging, the client of their cluster, and the probe
// that their charts' tests run. It knows nothing of hub or agent.
package command

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// probeTimeout bounds one probe.
const probeTimeout = 10 * time.Second

// Version is the version of the build, set by the linker.
var Version = "dev"

// Flags are the few settings that people type.
type Flags struct {
	// Config is the path of the configuration file.
	Config string
	// Kubeconfig is the path of a kubeconfig; empty means the pod's account.
	Kubeconfig string
}

// Bind adds the flags, and klog's verbosity, to fs.
func (f *Flags) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.Config, "config", f.Config, "path of the configuration file")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "path of a kubeconfig; empty means the pod's own account")
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	fs.AddGoFlag(klogFlags.Lookup("v"))
}

// Client returns the configuration of a client without a rate limit of its
// own: the API server's priority and fairness is the limiter.
func (f *Flags) Client(userAgent string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: cannot load: %w", f.Kubeconfig, err)
	}
	cfg.QPS = -1
	cfg.UserAgent = userAgent + "/" + Version
	return cfg, nil
}

// Logger returns the process's logger, after handing it to the libraries that
// keep a global one.
func Logger() logr.Logger {
	logger := klog.NewKlogr()
	ctrl.SetLogger(logger)
	return logger
}

// Probe returns the command "probe HOST PORT PATH", which succeeds when a GET
// answers 200.
func Probe() *cobra.Command {
	return &cobra.Command{
		Use:   "probe HOST PORT PATH",
		Short: "Succeed when a plain HTTP GET answers 200",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			url := "http://" + net.JoinHostPort(args[0], args[1]) + args[2]
			return probe(cmd, url)
		},
	}
}

func probe(cmd *cobra.Command, url string) error {
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}
	client := &http.Client{Timeout: probeTimeout}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("probe %s: %s: %s", url, resp.Status, body)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", url)
	return err
}
