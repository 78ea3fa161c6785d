// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/env"
)

// handover bounds the time in which another replica executes works, once the one
// that did so is told to stop.
const handover = 10 * time.Second

// executorIsReplaced runs two agents of one cluster, deletes the pod of the one
// that executes works, and goes back to one agent.
func (s *suite) executorIsReplaced(t *testing.T) {
	spoke := s.spoke()
	since := s.readySince(t, spoke.Name)
	s.scaleAgent(t, 2)
	before := s.untilExecutor(t, 2, "")
	mark := auditSize(t, spoke)
	spoke.kubectl(t, "delete", "pod", before, "-n", env.AgentNamespace, "--wait=false")
	start := time.Now()
	s.hub.apply(t, configMapWork("handover", "handover"))
	s.untilWork(t, "handover", "Applied", "True")
	took := time.Since(start)
	t.Logf("a work made while its executor leaves is applied after %s", took.Round(time.Millisecond))
	if took > handover {
		t.Errorf("the work was applied after %s, want at most %s", took, handover)
	}
	after := s.untilExecutor(t, 2, before)
	t.Logf("works are executed by %s, then by %s", before, after)
	// One of them executes: what one has written the other does not write again.
	if got := countOurs(t, spoke, mark, "handover", "create", "patch", "update"); got != 1 {
		t.Errorf("writes of handover: got %d, want 1", got)
	}
	reportRaces(t, spoke.kubectl(t, "logs", "-n", env.AgentNamespace, "-l", agentPods, "--tail=-1"))
	s.scaleAgent(t, 1)
	s.untilExecutor(t, 1, "")
	s.hub.kubectl(t, "delete", "work", "handover", "-n", spoke.Name, "--timeout=60s")
	s.untilGone(t, "handover")
	// There was an agent with a session at every moment.
	if now := s.readySince(t, spoke.Name); !now.Equal(since) {
		t.Errorf("the node is Ready since %s, want since %s as before", now, since)
	}
}

func (s *suite) scaleAgent(t *testing.T, replicas int) {
	t.Helper()
	if err := s.env.UpgradeAgent(t.Context(), s.spoke().Cluster, fmt.Sprintf("replicas=%d", replicas)); err != nil {
		t.Fatal(err)
	}
}

// readySince is when a virtual node, which is Ready, became so.
func (s *suite) readySince(t *testing.T, name string) time.Time {
	t.Helper()
	node, err := s.hub.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready := nodeCondition(node, corev1.NodeReady)
	if ready.Status != corev1.ConditionTrue {
		t.Fatalf("node %s: Ready is %q: %s: %s", name, ready.Status, ready.Reason, ready.Message)
	}
	return ready.LastTransitionTime.Time
}

// untilExecutor waits until a number of agents, and no others, are there and
// ready, and one of them that is not the former holds the Lease. It returns the
// name of its pod.
func (s *suite) untilExecutor(t *testing.T, replicas int, former string) string {
	t.Helper()
	var holder string
	until(t, fmt.Sprintf("%d agents, one of which executes", replicas), settle, func(ctx context.Context) error {
		pods, err := s.spoke().kube.CoreV1().Pods(env.AgentNamespace).List(ctx, metav1.ListOptions{LabelSelector: agentPods})
		if err != nil {
			return err
		}
		var ready []string
		for i := range pods.Items {
			if podReady(&pods.Items[i]) {
				ready = append(ready, pods.Items[i].Name)
			}
		}
		if len(pods.Items) != replicas || len(ready) != replicas {
			return fmt.Errorf("%d pods are there, of which %v are ready", len(pods.Items), ready)
		}
		lease, err := s.spoke().kube.CoordinationV1().Leases(env.AgentNamespace).Get(ctx, "spokelet-agent", metav1.GetOptions{})
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

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
