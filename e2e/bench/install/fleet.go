// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/fleet"
)

const (
	fleetSize = 200

	// secretCount of secretSize bytes are on the hub meanwhile, and are none of its
	// business: what a cluster costs does not depend on them.
	secretCount = 2000
	secretSize  = 2000
)

// clusters measures what one more connected cluster costs the hub: a fleet of
// agents in a process of its own joins, and the hub's memory is compared.
func (s *suite) clusters(ctx context.Context) ([]figure.Figure, error) {
	if err := s.manySecrets(ctx, secretCount, secretSize); err != nil {
		return nil, err
	}
	before, err := s.rss(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	running, err := fleet.Start(ctx, s.env, fleet.Names("fleet", fleetSize))
	if err != nil {
		return nil, err
	}
	defer func() { _ = running.Close() }()
	after, err := s.rss(ctx, s.hub, hubPods())
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "hub.rss.per.cluster.mib", Value: (after - before) / fleetSize, Unit: "MiB", Detail: fmt.Sprintf("%.1f MiB with %d more clusters, %.1f before, %d Secrets on the hub", after, fleetSize, before, secretCount)},
	}, nil
}
