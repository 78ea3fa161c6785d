// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters"
	"github.com/spokelet/spokelet/hack/clusters/image"
)

const (
	metricsServer          = "metrics-server"
	metricsServerNamespace = "kube-system"
)

// MetricsServer is the program behind "kubectl top", with its own chart.
type MetricsServer struct {
	env     *Env
	version string
	chart   string
	archive string // of its image
}

// MetricsServer builds it and its image from its module.
func (e *Env) MetricsServer(ctx context.Context) (*MetricsServer, error) {
	program, err := e.Set.Program(ctx, metricsServer)
	if err != nil {
		return nil, err
	}
	version, dir, err := e.Set.Module(ctx, metricsServer)
	if err != nil {
		return nil, err
	}
	m := &MetricsServer{
		env: e, version: version,
		chart:   filepath.Join(dir, "charts", metricsServer),
		archive: filepath.Join(e.Build.Root, "bin", "images", metricsServer+".tar"),
	}
	spec := image.Spec{
		Ref:   "registry.k8s.io/metrics-server/metrics-server:" + version, // as the chart has it
		Files: []image.File{{Path: "/" + metricsServer, Source: program}}, Entrypoint: []string{"/" + metricsServer}, User: "65534",
	}
	if err := writeImage(m.archive, spec); err != nil {
		return nil, fmt.Errorf("image %s: %w", metricsServer, err)
	}
	return m, nil
}

// Install installs it in a cluster, with the chart's own values and those that are
// given, and does not wait for it.
func (m *MetricsServer) Install(ctx context.Context, c *clusters.Cluster, values ...string) error {
	if err := c.LoadImage(ctx, m.archive); err != nil {
		return fmt.Errorf("%s on %s: %w", metricsServer, c.Name, err)
	}
	args := []string{"upgrade", "--install", metricsServer, m.chart, "--namespace", metricsServerNamespace, "--set", "image.tag=" + m.version}
	_, err := m.env.Helm(c).Run(ctx, append(args, values...)...)
	return err
}

// InstallOnHub installs it where virtual nodes are. Their serving certificates are
// the hub's own CA's, which it is told beside the cluster's.
func (m *MetricsServer) InstallOnHub(ctx context.Context) error {
	kubectl := m.env.Kubectl(m.env.Set.Hub())
	cluster, err := kubectl.Run(ctx, "get", "configmap", "kube-root-ca.crt", "-n", metricsServerNamespace, "-o", `jsonpath={.data.ca\.crt}`)
	if err != nil {
		return err
	}
	encoded, err := kubectl.Run(ctx, "get", "apiservice", "v1alpha1.live.spokelet.io", "-o", "jsonpath={.spec.caBundle}")
	if err != nil {
		return err
	}
	hub, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("CA of the hub: %w", err)
	}
	manifest, err := kubectl.Run(ctx, "create", "configmap", "kubelets-ca", "-n", metricsServerNamespace,
		"--from-literal=ca.crt="+cluster+"\n"+string(hub), "--dry-run=client", "-o", "yaml")
	if err != nil {
		return err
	}
	if _, err := kubectl.RunInput(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		return err
	}
	return m.Install(ctx, m.env.Set.Hub(),
		"--set", "args={--kubelet-certificate-authority=/kubelets/ca.crt}",
		"--set-json", `extraVolumes=[{"name":"kubelets","configMap":{"name":"kubelets-ca"}}]`,
		"--set-json", `extraVolumeMounts=[{"name":"kubelets","mountPath":"/kubelets","readOnly":true}]`)
}

// Uninstall removes it.
func (m *MetricsServer) Uninstall(ctx context.Context, c *clusters.Cluster) error {
	_, err := m.env.Helm(c).Run(ctx, "uninstall", metricsServer, "--namespace", metricsServerNamespace)
	return err
}
