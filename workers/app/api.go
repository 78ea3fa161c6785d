// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/connlimit"
	"github.com/spokelet/spokelet/workers/access"
	"github.com/spokelet/spokelet/workers/cloudflare"
	"github.com/spokelet/spokelet/workers/config"
	"github.com/spokelet/spokelet/workers/controllers"
	"github.com/spokelet/spokelet/workers/deployer"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/tail"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

const (
	// shutdownTimeout is how long requests may take to end when the process is to.
	shutdownTimeout = 20 * time.Second
	// tailLifetime limits how long a withdrawn permission still counts: wrangler creates another tail
	// when one has ended, which is authorized again.
	tailLifetime = time.Hour
)

// apiFlags are those of the API for wrangler.
type apiFlags struct{ kubeconfig, address, health, certificate, key string }

func apiCommand(f *flags) *cobra.Command {
	var a apiFlags
	cmd := &cobra.Command{
		Use: "api", Short: "Serve the part of Cloudflare's API that wrangler calls", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.load()
			if err != nil {
				return err
			}
			return runAPI(cmd.Context(), a, cfg)
		},
	}
	set := cmd.Flags()
	set.StringVar(&a.kubeconfig, "kubeconfig", "", "path of a kubeconfig of the hub; empty means the pod's own account")
	set.StringVar(&a.address, "address", ":8443", "where the API is served")
	set.StringVar(&a.health, "health-address", ":8080", "where /healthz and /readyz are served")
	set.StringVar(&a.certificate, "tls-cert", "/tls/tls.crt", "path of the certificate, which is read again when it changes")
	set.StringVar(&a.key, "tls-key", "/tls/tls.key", "path of the certificate's key")
	return cmd
}

// runAPI serves until the context ends.
func runAPI(ctx context.Context, f apiFlags, cfg config.Config) error {
	kube, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %q: cannot load: %w", f.kubeconfig, err)
	}
	kube.QPS, kube.UserAgent = -1, "spokelet-workers-api/"+Version // priority and fairness is the limiter
	hub, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	certificate, err := certwatcher.New(f.certificate, f.key)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	tails, err := tail.New(tail.Config{Kube: kube, Limits: cfg.Tails, Lifetime: tailLifetime})
	if err != nil {
		return err
	}
	defer tails.Close()
	accounts := access.NewAccounts(hub)
	api, err := newAPI(kube, hub, cfg, accounts, tails)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { accounts.Run(ctx); return nil })
	group.Go(func() error { return certificate.Start(ctx) })
	group.Go(func() error {
		return serve(ctx, cloudflare.NewServer(api, certificate.GetCertificate, logger()), f.address, cloudflare.Listen, tails.Close)
	})
	group.Go(func() error {
		return serve(ctx, newProbeServer(accounts.HasSynced), f.health, limitProbeConnections, nil)
	})
	return group.Wait()
}

func newAPI(kube *rest.Config, hub kubernetes.Interface, cfg config.Config, accounts *access.Accounts, tails *tail.Tails) (*cloudflare.API, error) {
	scheme, err := controllers.NewScheme()
	if err != nil {
		return nil, err
	}
	counted := rest.CopyConfig(kube)
	counted.Wrap(quota.Transport)
	objects, err := client.NewWithWatch(counted, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	storage := cfg.Store.Config
	storage.Wrap = quota.Transport
	bucket, err := store.New(storage)
	if err != nil {
		return nil, err
	}
	versions := version.NewRepository(bucket, bucket, cfg.Store.Bucket)
	return cloudflare.New(cloudflare.Config{
		Reviewer: access.NewReviewer(hub.AuthenticationV1(), hub.AuthorizationV1()),
		Accounts: accounts, Tails: tails, Log: logger(),
		Deployer: deployer.New(deployer.Config{Client: objects, Versions: versions, History: versions, Bucket: cfg.Store.Bucket, Log: logger()}),
		Limits:   upload.Limits{MaxModules: cfg.Store.MaxModules, MaxBytes: cfg.Store.MaxBytes},
	})
}

// limitProbeConnections limits the connections of the probe server, which anybody may call.
func limitProbeConnections(l net.Listener) net.Listener {
	return connlimit.New(l, connlimit.Limits{Unauthorized: 64, UnauthorizedTimeout: shutdownTimeout})
}

// newProbeServer returns the server of the probes.
func newProbeServer(synced func() bool) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if synced() {
			return
		}
		http.Error(w, errNotSynced.Error(), http.StatusServiceUnavailable)
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: shutdownTimeout, ReadTimeout: shutdownTimeout, WriteTimeout: shutdownTimeout, MaxHeaderBytes: 8 << 10}
}

// serve serves until the context ends, and then waits for running requests. limit limits the
// connections; end ends requests that would not end by themselves.
func serve(ctx context.Context, server *http.Server, address string, limit func(net.Listener) net.Listener, end func()) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	listener = limit(listener)
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		if end != nil {
			end()
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(within)
	}()
	if server.TLSConfig != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	return <-stopped
}
