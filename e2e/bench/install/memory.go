// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

const (
	thousands     = 10_000
	unrelatedSize = 10_000 // bytes

	// settle is how long a process is looked at for its least memory: what a
	// burst left behind goes back to the system over seconds.
	settle      = 12 * time.Second
	settleEvery = 2 * time.Second
)

// memory is the agent's, with the thousand works of the bulk in place.
func (s *suite) memory(ctx context.Context) ([]figure.Figure, error) {
	rss, err := s.rss(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	return []figure.Figure{{Name: "agent.rss.1000works.mib", Value: rss, Unit: "MiB", Detail: "resident, after the bulk"}}, nil
}

// unrelated measures what objects cost the agent that are of a kind and in a
// namespace that it watches, and that no work has.
func (s *suite) unrelated(ctx context.Context) ([]figure.Figure, error) {
	before, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	maps := s.spoke.dyn.Resource(configMapsResource()).Namespace("bench")
	payload := strings.Repeat("x", unrelatedSize)
	err = parallel(ctx, writers, thousands, func(ctx context.Context, i int) error {
		obj := &unstructured.Unstructured{Object: newConfigMap(fmt.Sprintf("unrelated-%d", i))}
		if err := unstructured.SetNestedField(obj.Object, payload, "data", "k"); err != nil {
			return err
		}
		obj.SetLabels(map[string]string{"bench": "unrelated"})
		return create(ctx, maps, obj)
	})
	if err != nil {
		return nil, err
	}
	after, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	// They are in the way of what follows.
	err = maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bench=unrelated"})
	return []figure.Figure{{
		Name: "agent.unrelated.rss.mib", Value: after - before, Unit: "MiB",
		Detail: fmt.Sprintf("%.1f MiB with %d ConfigMaps of 10 KB, %.1f before", after, thousands, before),
	}}, err
}

// thousands measures the memory for ten thousand works of one agent, those of the
// bulk among them.
func (s *suite) thousands(ctx context.Context) ([]figure.Figure, error) {
	hubBefore, err := s.settled(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	taken, err := s.bulkWorks(ctx, manifestWork(), "more-", thousands-many)
	if err != nil {
		return nil, err
	}
	agent, err := s.settled(ctx, s.spoke, agentPods())
	if err != nil {
		return nil, err
	}
	hub, err := s.settled(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	return []figure.Figure{{
		Name: "work.10000.rss.mib", Value: agent, Unit: "MiB",
		Detail: fmt.Sprintf("resident agent; hub %.1f MiB, %.1f before the last %d, which took %s", hub, hubBefore, thousands-many, taken.Round(time.Second)),
	}}, nil
}

// settled is the least resident memory of a component in a while.
func (s *suite) settled(ctx context.Context, on *site, of pods) (float64, error) {
	least, err := s.rss(ctx, on, of)
	if err != nil {
		return 0, err
	}
	for range settle / settleEvery {
		if err := pause(ctx, settleEvery); err != nil {
			return 0, err
		}
		now, err := s.rss(ctx, on, of)
		if err != nil {
			return 0, err
		}
		least = min(least, now)
	}
	return least, nil
}
