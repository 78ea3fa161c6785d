// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/e2e/env"
)

// AgentPods selects the pods of the agent's chart.
const AgentPods = "app.kubernetes.io/name=spokelet-agent"

// UntilReady waits for the Ready condition of a virtual node and returns its
// reason.
func (s *Testbed) UntilReady(t *testing.T, name string, want corev1.ConditionStatus, timeout time.Duration) string {
	t.Helper()
	var reason string
	Until(t, fmt.Sprintf("node %s Ready=%s", name, want), timeout, func(ctx context.Context) error {
		node, err := s.Hub.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := NodeCondition(node, corev1.NodeReady)
		reason = ready.Reason
		if ready.Status != want {
			return fmt.Errorf("is %q: %s: %s", ready.Status, ready.Reason, ready.Message)
		}
		return nil
	})
	return reason
}

// NodeCondition is a condition of a node, empty if it has none of that kind.
func NodeCondition(node *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// NoRace fails the test if the hub, or an agent that runs, reported a race or a panic, or
// the hub restarted.
func (s *Testbed) NoRace(t *testing.T) {
	ReportRaces(t, s.Hub.Kubectl(t, "logs", "-n", env.HubNamespace, "deployment/spokelet-hub", "--tail=-1"))
	for _, spoke := range s.Spokes {
		ReportRaces(t, spoke.Kubectl(t, "logs", "-n", env.AgentNamespace, "-l", AgentPods, "--tail=-1", "--prefix"))
	}
	out := s.Hub.Kubectl(t, "get", "pods", "-n", env.HubNamespace, "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	if strings.Trim(out, "0 ") != "" {
		t.Errorf("the hub's container restarted: %s", out)
	}
}

// ReportRaces fails the test if logs tell of a race or a panic.
func ReportRaces(t *testing.T, logs string) {
	t.Helper()
	for _, word := range []string{"DATA RACE", "panic:", "Observed a panic"} {
		if _, after, found := strings.Cut(logs, word); found {
			t.Errorf("%s: %.2000s", word, after)
		}
	}
}

// Wait lets time pass: what does not happen in it is what is tested.
func Wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// Parallel runs tests that touch nothing of each other.
func Parallel(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	// The group is over when the last of them is.
	t.Run("together", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

// Settle bounds what takes a controller or a kubelet some time.
const Settle = 3 * time.Minute

// podSettle bounds what a pod takes: on a slow machine a dozen at once took more than Settle to run.
const podSettle = 5 * time.Minute

// between are the least pauses between the looks of Until. They grow: dozens of tests wait at the
// same time, and an API server that answers them has no time for what they wait for.
var between = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Steps: 20, Cap: 100 * time.Millisecond}

// mostBetween is the longest pause.
const mostBetween = time.Second

// Until asks again until done says so, or fails the test with its last word. It pauses for at
// least three times as long as the last look took: one that starts processes must not take a
// processor to itself.
func Until(t *testing.T, what string, timeout time.Duration, done func(context.Context) error) {
	t.Helper()
	if err := until(t.Context(), timeout, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func until(ctx context.Context, timeout time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	next := between.DelayFunc()
	for {
		began := time.Now()
		err := done(ctx)
		if err == nil {
			return nil
		}
		// What was cut short by the end of the time says nothing.
		if ctx.Err() == nil || last == nil {
			last = err
		}
		pause := time.NewTimer(min(max(next(), 3*time.Since(began)), mostBetween))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("not within %s: %w", timeout, last)
		}
	}
}

// Step is one test of a suite whose tests build on each other.
type Step struct {
	Name string
	Run  func(*testing.T)
}

// InOrder runs steps one after the other. If one of the first fails, as many as are
// vital, those after it are not run.
func InOrder(t *testing.T, vital int, steps ...Step) {
	t.Helper()
	for i, step := range steps {
		if !t.Run(step.Name, step.Run) && i < vital {
			t.Fatalf("stopped after %q", step.Name)
		}
	}
}
