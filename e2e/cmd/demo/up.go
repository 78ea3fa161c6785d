// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/hack/clusters"
)

//go:embed manifests
var manifests embed.FS

// setName keeps the demo's clusters apart from the tests'.
const setName = "demo"

func up(ctx context.Context) error {
	fmt.Println("# Clusters: a hub that cannot dial its spokes, and two spokes.")
	// A demo begins with nothing, also after one that was interrupted.
	if err := down(ctx); err != nil {
		return err
	}
	set, err := clusters.Up(ctx, clusters.Config{Name: setName, Spokes: 2, Log: env.Progress(os.Stdout)})
	if err != nil {
		return err
	}
	e, err := env.New(ctx, set, env.Build{Version: "demo"}, os.Stdout)
	if err != nil {
		return err
	}
	dir, err := unpack(e.Build.Root)
	if err != nil {
		return err
	}
	if err := install(ctx, e); err != nil {
		return err
	}
	s := &script{env: e, dir: dir}
	if err := s.play(ctx); err != nil {
		return err
	}
	return s.next()
}

func down(ctx context.Context) error {
	return clusters.Down(ctx, clusters.Config{Name: setName, Log: env.Progress(os.Stdout)})
}

// unpack writes the manifests where the reader can edit and apply them again.
func unpack(root string) (string, error) {
	dir := filepath.Join(root, "bin", "demo")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("demo manifests: %w", err)
	}
	for _, name := range []string{"pod.yaml", "work.yaml", "view.yaml"} {
		data, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return "", fmt.Errorf("demo manifests: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", fmt.Errorf("demo manifests: %w", err)
		}
	}
	return dir, nil
}

func install(ctx context.Context, e *env.Env) error {
	fmt.Println("\n# The hub, installed with helm.")
	if err := e.InstallHub(ctx); err != nil {
		return err
	}
	for _, spoke := range e.Set.Spokes() {
		fmt.Printf("\n# %s joins: the hub prints a helm line, the spoke runs it.\n", spoke.Name)
		// Its owner passes on the group that the view below is asked for in.
		if err := e.Join(ctx, spoke, "--set", "kube.groups={platform}"); err != nil {
			return err
		}
	}
	return nil
}

// script plays the commands of the transcript.
type script struct {
	env *env.Env
	dir string
}

func (s *script) play(ctx context.Context) error {
	hub, spoke := s.env.Set.Hub(), s.env.Set.Spokes()[0]
	pod, work, view := filepath.Join(s.dir, "pod.yaml"), filepath.Join(s.dir, "work.yaml"), filepath.Join(s.dir, "view.yaml")
	steps := []struct {
		say  string
		on   *clusters.Cluster
		args []string
	}{
		{"Each spoke is a node.", hub, []string{"wait", "--for=condition=Ready", "node/spoke1", "node/spoke2", "--timeout=60s"}},
		{"", hub, []string{"get", "nodes", "-o", "wide"}},
		{"", hub, []string{"get", "clusters.live.spokelet.io"}},
		{"A Deployment of the hub, whose pods ask for the node: they run in the spoke.", hub, []string{"apply", "-f", pod}},
		{"", hub, []string{"wait", "--for=condition=Available", "deployment/web", "-n", "shop", "--timeout=120s"}},
		{"", hub, []string{"get", "pods", "-n", "shop", "-o", "wide"}},
		{"", hub, []string{"logs", "deployment/web", "-n", "shop"}},
		{"", hub, []string{"exec", "deployment/web", "-n", "shop", "--", "busybox", "uptime"}},
		{"A Work: written on the hub, applied beside the spoke's API server.", hub, []string{"apply", "-f", work}},
		{"", hub, []string{"wait", "--for=condition=Healthy", "works.multicluster.x-k8s.io/hello", "-n", "spoke1", "--timeout=120s"}},
		{"", hub, []string{"get", "works.multicluster.x-k8s.io", "hello", "-n", "spoke1", "-o", `jsonpath={range .status.conditions[*]}{.type}{"\t"}{.status}{"\t"}{.reason}{"\n"}{end}`}},
		{"The spoke's owner lets the hub's group \"platform\" read.", spoke, []string{"create", "clusterrolebinding", "hub-platform", "--clusterrole=view", "--group=hub:platform"}},
		{"On the hub, the group may ask for views in the namespace of spoke1.", hub, []string{"create", "rolebinding", "platform", "-n", "spoke1", "--clusterrole=view", "--group=platform"}},
		{"A view: the spoke's pods as they are now, read as the caller.", hub, []string{"create", "-f", view, "--as=alice", "--as-group=platform", "-o", `jsonpath={range .status.clusters[*].table.rows[*]}{.cells[0]}{"\t"}{.cells[1]}{"\t"}{.cells[2]}{"\n"}{end}`}},
		{"The same through the proxy.", hub, []string{"get", "--raw", "/apis/live.spokelet.io/v1alpha1/clusters/spoke1/proxy/version"}},
	}
	for _, step := range steps {
		if err := s.env.Show(ctx, step.say, step.on, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// next prints what to type next.
func (s *script) next() error {
	var lines strings.Builder
	fmt.Fprintf(&lines, "\n# The clusters are up. Type:\n\nexport PATH=%s:$PATH\nexport KUBECONFIG=%s\n\n", s.env.Bin, s.env.Set.Hub().Kubeconfig)
	fmt.Fprintf(&lines, "kubectl get nodes\nkubectl get pods -n shop -o wide\nkubectl exec -it deployment/web -n shop -- sh\nkubectl get works.multicluster.x-k8s.io -A\nkubectl get works.multicluster.x-k8s.io hello -n spoke1 -o yaml\n")
	fmt.Fprintf(&lines, "kubectl create -f %s --as=alice --as-group=platform -o yaml\n", filepath.Join(s.dir, "view.yaml"))
	for _, spoke := range s.env.Set.Spokes() {
		fmt.Fprintf(&lines, "kubectl --kubeconfig %s get pods -A\n", spoke.Kubeconfig)
	}
	lines.WriteString("\nmake demo-down\n")
	_, err := os.Stdout.WriteString(lines.String())
	return err
}
