// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package leave

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

func (s *tests) agentUninstalls(t *testing.T) {
	spoke := s.Spoke()
	s.Hub.Apply(t, s.ConfigMapWork("left", "left-behind"))
	s.UntilWork(t, "left", "Applied", "True")
	s.startLeft(t, spoke)
	spoke.Kubectl(t, "create", "configmap", "action-entry", "-n", env.AgentNamespace)
	spoke.Kubectl(t, "label", "configmap", "action-entry", "-n", env.AgentNamespace, "spokelet.io/ledger=action")
	if _, err := s.Env.Helm(spoke.Cluster).Run(t.Context(), "uninstall", "spokelet-agent", "--namespace", env.AgentNamespace, "--wait", "--timeout", "3m"); err != nil {
		out, _ := spoke.Command.Run(context.WithoutCancel(t.Context()), "logs", "-n", env.AgentNamespace, "-l", "app.kubernetes.io/name=spokelet-agent-uninstall", "--tail=20", "--prefix")
		t.Fatalf("%v; the Job says\n%s", err, out)
	}
	kept, err := spoke.Kube.CoreV1().ConfigMaps("default").Get(t.Context(), "left-behind", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("what was applied stays: %v", err)
	}
	if len(kept.OwnerReferences) > 0 {
		t.Errorf("what stays belongs to nobody, got %v", kept.OwnerReferences)
	}
	if out := spoke.Kubectl(t, "get", "configmap", "-n", env.AgentNamespace, "-o", "name"); strings.Contains(out, "action-entry") {
		t.Errorf("the ledger of actions stayed:\n%s", out)
	}
	if out := spoke.Kubectl(t, "get", "crd", "-o", "name"); strings.Contains(out, "appliedworks") {
		t.Errorf("the anchors' definition stayed:\n%s", out)
	}
	if out := spoke.Kubectl(t, "get", "clusterroles,clusterrolebindings", "-o", "name"); strings.Contains(out, "spokelet") {
		t.Errorf("rights stayed:\n%s", out)
	}
	s.UntilReady(t, spoke.Name, corev1.ConditionFalse, testbed.Settle)
	s.noneLeft(t, spoke)
}

func (s *tests) detach(t *testing.T) {
	name := s.Spoke().Name
	s.Hub.Kubectl(t, "spokelet", "detach", name, "--force")
	testbed.Until(t, "traces of a detached cluster", testbed.Settle, func(ctx context.Context) error {
		out, err := s.Hub.Command.Run(ctx, "get", "managedcluster/"+name, "node/"+name, "namespace/"+name, "--ignore-not-found", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
}

// podsLeave deletes the pods' namespace on the hub.
func (s *tests) podsLeave(t *testing.T) {
	s.Hub.Kubectl(t, "delete", "namespace", testbed.PodsNamespace, "--timeout=180s")
	for _, kind := range []string{"pods", "configmaps", "secrets"} {
		out := s.Spoke().Kubectl(t, "get", kind, "-A", "-l", "spokelet.io/hub", "-o", "name")
		if out != "" {
			t.Errorf("left in the spoke:\n%s", out)
		}
	}
}

// leftNamespace is that of the pods that run while a cluster leaves.
const leftNamespace = "left"

// startLeft has a pod run in a cluster that is about to leave.
func (s *tests) startLeft(t *testing.T, on *testbed.Site) {
	t.Helper()
	s.Hub.Apply(t, testbed.PodIn(leftNamespace, "on-"+on.Name, "nodeName: "+on.Name+", ", testbed.Container("main", testbed.Forever, "")))
	testbed.UntilPodIn(t, s.Hub, leftNamespace, "on-"+on.Name, "ready", testbed.Ready)
}

// noneLeft waits until no pod of the hub runs in a cluster.
func (s *tests) noneLeft(t *testing.T, in *testbed.Site) {
	t.Helper()
	testbed.Until(t, in.Name+": absence of the hub's pods", testbed.Settle, func(ctx context.Context) error {
		out, err := in.Command.Run(ctx, "get", "pods", "-A", "-l", "spokelet.io/hub", "-o", "name")
		if err == nil && out != "" {
			err = fmt.Errorf("left: %s", out)
		}
		return err
	})
}

func (s *tests) workIsDeleted(t *testing.T) {
	for _, name := range []string{"basic", "drift"} {
		s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", name, "-n", "spoke1", "--timeout=180s")
	}
	// The objects go before the Work does, so nothing is waited for here.
	for _, name := range []string{"one", "drifts"} {
		if _, err := s.Value(t.Context(), name); !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want it gone", name, err)
		}
	}
	anchors, err := s.Spoke().Dyn.Resource(testbed.AppliedWorksResource).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, anchor := range anchors.Items {
		if name := anchor.GetName(); name == "basic" || name == "drift" {
			t.Errorf("anchor %s stayed", name)
		}
	}
}
