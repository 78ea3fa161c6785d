// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

// executorLease says which agent of a cluster executes works.
const executorLease = "spokelet-agent"

// executorIsReplaced runs two agents of one cluster, deletes the pod of the one
// that executes works, and goes back to one agent.
func (s *tests) executorIsReplaced(t *testing.T) {
	spoke := s.Spoke()
	since := s.readySince(t, spoke.Name)
	s.scaleAgent(t, 2)
	before := s.untilExecutor(t, 2, "")
	mark := testbed.AuditSize(t, spoke)
	givenUp := s.watchLease(t)
	testbed.ReportRaces(t, spoke.Kubectl(t, "logs", "-n", env.AgentNamespace, before, "--tail=-1"))
	spoke.Kubectl(t, "delete", "pod", before, "-n", env.AgentNamespace, "--wait=false")
	start := time.Now()
	s.Hub.Apply(t, s.ConfigMapWork("handover", "handover"))
	s.UntilWork(t, "handover", "Applied", "True")
	t.Logf("a work made while its executor leaves is applied after %s", time.Since(start).Round(time.Millisecond))
	after := s.untilExecutor(t, 2, before)
	if !givenUp(after) {
		t.Error("the lease was not given up: who came next had to wait for its end")
	}
	t.Logf("works are executed by %s, then by %s", before, after)
	// One of them executes: what one has written the other does not write again.
	if got := testbed.CountOurs(t, spoke, mark, "handover", "create", "patch", "update"); got != 1 {
		t.Errorf("writes of handover: got %d, want 1", got)
	}
	testbed.ReportRaces(t, spoke.Kubectl(t, "logs", "-n", env.AgentNamespace, "-l", testbed.AgentPods, "--tail=-1"))
	s.scaleAgent(t, 1)
	s.untilExecutor(t, 1, "")
	s.Hub.Kubectl(t, "delete", "works.multicluster.x-k8s.io", "handover", "-n", spoke.Name, "--timeout=180s")
	s.UntilGone(t, "handover")
	// There was an agent with a session at every moment.
	if now := s.readySince(t, spoke.Name); !now.Equal(since) {
		t.Errorf("the node is Ready since %s, want since %s as before", now, since)
	}
}

// watchLease follows the Lease of the executor from now on. What it returns tells
// whether nobody held it before its holder did.
func (s *tests) watchLease(t *testing.T) (givenUp func(holder string) bool) {
	t.Helper()
	leases := s.Spoke().Kube.CoordinationV1().Leases(env.AgentNamespace)
	now, err := leases.Get(t.Context(), executorLease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := leases.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + executorLease, ResourceVersion: now.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	return func(holder string) bool {
		free := false
		for e := range watcher.ResultChan() {
			lease, ok := e.Object.(*coordinationv1.Lease)
			switch {
			case !ok:
			case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "":
				free = true
			case *lease.Spec.HolderIdentity == holder:
				return free
			}
		}
		return free
	}
}

func (s *tests) scaleAgent(t *testing.T, replicas int) {
	t.Helper()
	if err := s.Env.UpgradeAgent(t.Context(), s.Spoke().Cluster, fmt.Sprintf("replicas=%d", replicas)); err != nil {
		t.Fatal(err)
	}
}

// readySince is when a virtual node, which is Ready, became so.
func (s *tests) readySince(t *testing.T, name string) time.Time {
	t.Helper()
	node, err := s.Hub.Kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := testbed.NodeCondition(node, corev1.NodeReady)
	if ready.Status != corev1.ConditionTrue {
		t.Fatalf("node %s: Ready is %q: %s: %s", name, ready.Status, ready.Reason, ready.Message)
	}
	return ready.LastTransitionTime.Time
}

// untilExecutor waits until a number of agents, and no others, are there and
// ready, and one of them that is not the former holds the Lease. It returns the
// name of its pod.
func (s *tests) untilExecutor(t *testing.T, replicas int, former string) string {
	t.Helper()
	var holder string
	testbed.Until(t, fmt.Sprintf("%d agents, one of which executes", replicas), testbed.Settle, func(ctx context.Context) error {
		pods, err := s.Spoke().Kube.CoreV1().Pods(env.AgentNamespace).List(ctx, metav1.ListOptions{LabelSelector: testbed.AgentPods})
		if err != nil {
			return err
		}
		var ready []string
		for i := range pods.Items {
			if testbed.PodReady(&pods.Items[i]) {
				ready = append(ready, pods.Items[i].Name)
			}
		}
		if len(pods.Items) != replicas || len(ready) != replicas {
			return fmt.Errorf("%d pods are there, of which %v are ready", len(pods.Items), ready)
		}
		lease, err := s.Spoke().Kube.CoordinationV1().Leases(env.AgentNamespace).Get(ctx, executorLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder = ""
		if id := lease.Spec.HolderIdentity; id != nil {
			holder = *id
		}
		if holder == former || !slices.Contains(ready, holder) {
			return fmt.Errorf("the lease is held by %q, ready are %v", holder, ready)
		}
		return nil
	})
	return holder
}
