// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

const (
	account = "1234"
	team    = "bench" // the account's namespace
	scripts = "hello" // the script, and its WorkerDeployment
	user    = "bench" // who asks the scripts
)

// rights are those of the one who asks: on the hub to reach clusters, and in them Services.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bench-workers}
rules:
- {apiGroups: [live.spokelet.io], resources: [clusters, clusters/proxy], verbs: [get]}
- {apiGroups: [""], resources: [services/proxy], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bench-workers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bench-workers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "%s"}]
`

const tenant = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + team + `, labels: {workers.spokelet.io/account: "` + account + `"}}
---
apiVersion: api.worker-account/v1alpha1
kind: WorkerAccount
metadata: {name: "` + account + `", namespace: ` + team + `}
spec: {workerBundleName: bundle, workerReleaseSelector: {}}
`

// suite is the installation that is measured.
type suite struct {
	env    *env.Env
	store  *env.Store
	images *env.ImageRegistry
	kube   kubernetes.Interface
	dyn    dynamic.Interface
	hub    string       // URL of its API server
	asUser *http.Client // asks as the user
	out    io.Writer

	versions int // that were stored
}

// Run brings up the clusters, measures, and removes them. There are no figures where workerd
// cannot be had; why is said.
func Run(ctx context.Context, out io.Writer) ([]figure.Figure, error) {
	root, err := env.Root()
	if err != nil {
		return nil, err
	}
	_, err = env.Build{Root: root}.Workerd(ctx)
	if errors.Is(err, env.ErrNoWorkerd) {
		_, err = fmt.Fprintf(out, "bench: worker bundles are left out: %v\n", err)
	}
	if err != nil {
		return nil, err
	}
	set, err := clusters.Up(ctx, clusters.Config{Name: "benchworkers", Spokes: 2, Log: env.Progress(out)})
	if err != nil {
		return nil, err
	}
	// Also after an interrupt.
	defer func() { _ = set.Down(context.WithoutCancel(ctx)) }()
	dir, err := os.MkdirTemp("", "bench-workers-")
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := &suite{out: out}
	defer s.close()
	if err := s.install(ctx, set, dir); err != nil {
		return nil, err
	}
	return s.measure(ctx)
}

// close ends the servers.
func (s *suite) close() {
	if s.images != nil {
		_ = s.images.Stop()
	}
	if s.store != nil {
		_ = s.store.Stop()
	}
}

func (s *suite) install(ctx context.Context, set *clusters.Set, dir string) (err error) {
	if s.env, err = env.New(ctx, set, env.Build{Version: "bench"}, s.out); err != nil {
		return err
	}
	if s.store, err = env.StartStore(ctx, set, dir); err != nil {
		return err
	}
	if s.images, err = env.StartRegistry(ctx, set, dir); err != nil {
		return err
	}
	if err := s.connect(set.Hub()); err != nil {
		return err
	}
	if err := s.env.InstallHub(ctx); err != nil {
		return err
	}
	hub := s.env.Kubectl(set.Hub())
	for _, spoke := range set.Spokes() {
		if err := s.env.Join(ctx, spoke); err != nil {
			return err
		}
		if _, err := hub.Run(ctx, "label", "managedcluster", spoke.Name, "workers.spokelet.io/clusters=true"); err != nil {
			return err
		}
		if err := apply(ctx, s.env.Kubectl(spoke), fmt.Sprintf(rights, "hub:"+user)); err != nil {
			return err
		}
	}
	if err := s.env.InstallWorkers(ctx, s.store, s.images); err != nil {
		return err
	}
	return apply(ctx, hub, fmt.Sprintf(rights, user)+"---"+tenant)
}

func apply(ctx context.Context, ctl env.Command, manifest string) error {
	_, err := ctl.RunInput(ctx, strings.NewReader(manifest), "apply", "-f", "-")
	return err
}

func (s *suite) connect(hub *clusters.Cluster) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", hub.Kubeconfig)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	cfg.QPS = -1
	if s.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if s.dyn, err = dynamic.NewForConfig(cfg); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{UserName: user}
	if s.asUser, err = rest.HTTPClientFor(as); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	s.hub = cfg.Host
	return nil
}

func deploymentsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "api.worker-deployment", Version: "v1alpha1", Resource: "workerdeployments"}
}

func buildersResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "api.job-builder", Version: "v1alpha1", Resource: "jobbuilders"}
}

func worksResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
}
