// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
)

const (
	// calm is how long after the last change the agent has kept its copy of the
	// works; only then everything rests.
	calm = 15 * time.Second

	// restWindow is how long the audit logs are read at rest.
	restWindow = 60 * time.Second
)

// pods names the pods of one component.
type pods struct{ namespace, selector, port string }

func hubPods() pods {
	return pods{namespace: env.HubNamespace, selector: "app.kubernetes.io/name=spokelet-hub", port: "8080"}
}

func agentPods() pods {
	return pods{namespace: env.AgentNamespace, selector: "app.kubernetes.io/name=spokelet-agent", port: "8080"}
}

// rss is the resident memory of a component's one process, in MiB, from its
// own metrics.
func (s *suite) rss(ctx context.Context, on *site, of pods) (float64, error) {
	list, err := on.kube.CoreV1().Pods(of.namespace).List(ctx, metav1.ListOptions{LabelSelector: of.selector})
	if err != nil || len(list.Items) != 1 {
		return 0, fmt.Errorf("pods of %s: got %d: %w", of.selector, len(list.Items), err)
	}
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/metrics", of.namespace, list.Items[0].Name, of.port)
	out, err := on.ctl.Run(ctx, "get", "--raw", path)
	if err != nil {
		return 0, err
	}
	bytes, err := env.Metric(out, "process_resident_memory_bytes")
	return bytes / (1 << 20), err
}

func (s *suite) idle(ctx context.Context) ([]figure.Figure, error) {
	agent, err := s.rss(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	return []figure.Figure{{Name: "agent.rss.idle.mib", Value: agent, Unit: "MiB", Detail: "resident, joined, no works"}}, nil
}

// rest counts what our identities ask for with the thousand works of the bulk in place.
func (s *suite) rest(ctx context.Context) ([]figure.Figure, error) {
	count, example, err := s.requestsAtRest(ctx)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{{Name: "rest.requests.per.s", Value: float64(count) / restWindow.Seconds(), Unit: "1/s", Detail: fmt.Sprintf("%d in %s%s", count, restWindow, example)}}, nil
}

// requestsAtRest counts what our identities ask of both API servers while nothing
// happens, and gives an example.
func (s *suite) requestsAtRest(ctx context.Context) (count int, example string, err error) {
	if err := pause(ctx, calm); err != nil {
		return 0, "", err
	}
	sites := []*site{s.hub, s.spoke}
	var marks []int64
	for _, site := range sites {
		mark, err := env.AuditSize(site.cluster)
		if err != nil {
			return 0, "", err
		}
		marks = append(marks, mark)
	}
	if err := pause(ctx, restWindow); err != nil {
		return 0, "", err
	}
	for i, site := range sites {
		requests, err := env.AuditSince(site.cluster, marks[i])
		if err != nil {
			return 0, "", err
		}
		for _, r := range requests {
			if r.Ours() && !r.AllowedAtRest() {
				count, example = count+1, ", such as "+r.String()
			}
		}
	}
	return count, example, nil
}

// pause lets time pass: here the passing is what is measured.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
