// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	rootcrds "github.com/spokelet/spokelet/api/crds"
	"github.com/spokelet/spokelet/workers/api/crds"
	"github.com/spokelet/spokelet/workers/config"
	"github.com/spokelet/spokelet/workers/controllers"
	"github.com/spokelet/spokelet/workers/registry"
	"github.com/spokelet/spokelet/workers/store"
)

// leaseName is that of the Lease that one replica at a time holds.
const leaseName = "spokelet-workers"

// controllerFlags are those of the operator.
type controllerFlags struct{ kubeconfig, namespace, health, metrics string }

func controllerCommand(f *flags) *cobra.Command {
	var c controllerFlags
	cmd := &cobra.Command{
		Use: "controller", Short: "Run the operator", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			return runController(cmd.Context(), c, cfg)
		},
	}
	set := cmd.Flags()
	set.StringVar(&c.kubeconfig, "kubeconfig", "", "path of a kubeconfig of the hub; empty means the pod's own account")
	set.StringVar(&c.namespace, "namespace", "spokelet-workers", "the operator's namespace, in which images are built")
	set.StringVar(&c.health, "health-address", ":8080", "where /healthz and /readyz are served")
	set.StringVar(&c.metrics, "metrics-address", ":8081", "where /metrics is served; 0 serves none")
	return cmd
}

// runController installs the definitions and runs the controllers until the context ends.
func runController(ctx context.Context, f controllerFlags, cfg config.Config) error {
	log := logger()
	kube, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %q: cannot load: %w", f.kubeconfig, err)
	}
	kube.QPS, kube.UserAgent = -1, "spokelet-workers/"+Version // priority and fairness is the limiter
	if err := installCRDs(ctx, kube); err != nil {
		return err
	}
	settings, err := controllerConfig(cfg, f.namespace)
	if err != nil {
		return err
	}
	scheme, err := controllers.NewScheme()
	if err != nil {
		return err
	}
	caches, err := controllers.CacheOptions(f.namespace)
	if err != nil {
		return err
	}
	mgr, err := manager.New(kube, manager.Options{
		Scheme: scheme, Logger: log, Cache: caches,
		HealthProbeBindAddress: f.health, Metrics: metricsserver.Options{BindAddress: f.metrics},
		LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: f.namespace, LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	if err := controllers.Setup(ctx, mgr, settings); err != nil {
		return err
	}
	if err := addProbes(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// installCRDs installs the definitions of the kinds.
func installCRDs(ctx context.Context, kube *rest.Config) error {
	client, err := dynamic.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	objects, err := crds.Objects()
	if err != nil {
		return err
	}
	return rootcrds.InstallObjects(ctx, client, objects)
}

// addProbes adds the probes: the operator is ready when its caches have synced.
func addProbes(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	synced := func(r *http.Request) error {
		if !mgr.GetCache().WaitForCacheSync(r.Context()) {
			return errNotSynced
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("cache", synced); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

// controllerConfig returns the configuration of the controllers.
func controllerConfig(cfg config.Config, namespace string) (controllers.Config, error) {
	objects, err := store.New(cfg.Store.Config)
	if err != nil {
		return controllers.Config{}, err
	}
	images, err := registry.New(cfg.Registry.Config)
	if err != nil {
		return controllers.Config{}, err
	}
	return controllers.Config{Store: objects, Registry: images, Namespace: namespace, Settings: cfg}, nil
}
