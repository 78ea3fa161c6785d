// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spokelet/spokelet/e2e/env"
)

//go:embed manifests
var manifests embed.FS

func up(ctx context.Context) error {
	e, err := raise(ctx)
	if err != nil {
		return err
	}
	if err := unpack(filepath.Join(e.Build.Root, folder)); err != nil {
		return err
	}
	t := &transcript{env: e}
	if err := t.play(ctx, fleet(e)...); err != nil {
		return err
	}
	lines := []string{
		"kubectl get nodes",
		"kubectl get pods -n shop -o wide",
		"kubectl exec -it deployment/web -n shop -- sh",
		"kubectl get works.multicluster.x-k8s.io -A",
		"kubectl get works.multicluster.x-k8s.io hello -n spoke1 -o yaml",
		"kubectl create -f " + folder + "/view.yaml --as=alice --as-group=platform -o yaml",
	}
	for _, spoke := range e.Set.Spokes() {
		lines = append(lines, "kubectl --kubeconfig "+spoke.Kubeconfig+" get pods -A")
	}
	t.next(lines...)
	return nil
}

// unpack writes the manifests where the reader can edit and apply them again.
func unpack(dir string) error {
	for _, name := range []string{"pod.yaml", "work.yaml", "view.yaml"} {
		data, err := manifests.ReadFile("manifests/" + name)
		if err != nil {
			return fmt.Errorf("demo manifests: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("demo manifests: %w", err)
		}
	}
	return nil
}

// fleet shows nodes, pods, works and views.
func fleet(e *env.Env) []step {
	const (
		conditions = `-o jsonpath='{range .status.conditions[*]}{.type}{"\t"}{.status}{"\t"}{.reason}{"\n"}{end}'`
		cells      = `-o jsonpath='{range .status.clusters[*].table.rows[*]}{.cells[0]}{"\t"}{.cells[1]}{"\t"}{.cells[2]}{"\n"}{end}'`
	)
	hub, spoke := e.Set.Hub(), e.Set.Spokes()[0]
	return []step{
		{say: "Each spoke is a node.", on: hub, line: "kubectl wait --for=condition=Ready node/spoke1 node/spoke2 --timeout=60s"},
		{on: hub, line: "kubectl get nodes -o wide"},
		{on: hub, line: "kubectl get clusters.live.spokelet.io"},
		{say: "A Deployment of the hub, whose pods ask for the node: they run in the spoke.", on: hub, line: "kubectl apply -f " + folder + "/pod.yaml"},
		{on: hub, line: "kubectl wait --for=condition=Available deployment/web -n shop --timeout=120s"},
		{on: hub, line: "kubectl get pods -n shop -o wide"},
		{on: hub, line: "kubectl logs deployment/web -n shop"},
		{on: hub, line: "kubectl exec deployment/web -n shop -- busybox uptime"},
		{say: "A Work: written on the hub, applied beside the spoke's API server.", on: hub, line: "kubectl apply -f " + folder + "/work.yaml"},
		{on: hub, line: "kubectl wait --for=condition=Healthy works.multicluster.x-k8s.io/hello -n spoke1 --timeout=120s"},
		{on: hub, line: "kubectl get works.multicluster.x-k8s.io hello -n spoke1 " + conditions},
		{say: `The spoke's owner lets the hub's group "platform" read.`, on: spoke, line: "kubectl create clusterrolebinding hub-platform --clusterrole=view --group=hub:platform"},
		{say: "On the hub, the group may ask for views in the namespace of spoke1.", on: hub, line: "kubectl create rolebinding platform -n spoke1 --clusterrole=view --group=platform"},
		{say: "A view: the spoke's pods as they are now, read as the caller.", on: hub, line: "kubectl create -f " + folder + "/view.yaml --as=alice --as-group=platform " + cells},
		{say: "The same through the proxy.", on: hub, line: "kubectl get --raw /apis/live.spokelet.io/v1alpha1/clusters/spoke1/proxy/version"},
	}
}
