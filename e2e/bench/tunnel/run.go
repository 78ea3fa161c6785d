// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"time"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/internal/testing/testca"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often each figure is measured: many short rounds, because
	// what disturbs one should not disturb all.
	Rounds int
	// Gets is the number of requests, one after the other, of a round.
	Gets int
	// Busy is for how long 64 requests at once are made in a round.
	Busy time.Duration
	// Bulk is the size of a round's download, in bytes.
	Bulk int64
	// StalledRounds and StalledGets are the pairs of rounds beside readers that have
	// stopped and without, and the requests of each. A p99 needs many of both.
	StalledRounds, StalledGets int
	// SlowRounds and SlowGets are the rounds on the slow link, and the requests
	// of each.
	SlowRounds, SlowGets int
}

// FullPlan takes about a minute.
func FullPlan() Plan {
	return Plan{Rounds: 21, Gets: 600, Busy: 300 * time.Millisecond, Bulk: 48 << 20, StalledRounds: 41, StalledGets: 1500, SlowRounds: 5, SlowGets: 40}
}

const (
	rtt      = 50 * time.Millisecond
	linkRate = 100e6 / 8 // bytes per second
	// certificateLifetime is longer than any benchmark takes.
	certificateLifetime = 24 * time.Hour
)

// Run measures the full plan.
func Run(ctx context.Context) ([]figure.Figure, error) { return Measure(ctx, FullPlan()) }

// Measure measures all figures of the tunnel.
func Measure(ctx context.Context, plan Plan) ([]figure.Figure, error) {
	a, err := testca.New()
	if err != nil {
		return nil, err
	}
	a.Lifetime = certificateLifetime
	figures, err := measureFast(ctx, a, plan)
	if err != nil {
		return nil, err
	}
	slow, err := measureSlow(ctx, a, plan)
	if err != nil {
		return nil, fmt.Errorf("slow link: %w", err)
	}
	return append(figures, slow), nil
}

// measureFast measures what needs no slow link.
func measureFast(ctx context.Context, a *testca.Authority, plan Plan) ([]figure.Figure, error) {
	base, err := startDirect(ctx, a)
	if err != nil {
		return nil, err
	}
	defer base.stop()
	s, err := startSession(ctx, a, nil)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	defer s.stop()
	direct, tunnelled := &path{transport: base.transport}, &path{transport: s.session}
	for range plan.Rounds {
		if err := measureRound(ctx, plan, direct, tunnelled); err != nil {
			return nil, err
		}
	}
	stalled, err := measureStalled(ctx, s.session, plan)
	if err != nil {
		return nil, fmt.Errorf("stalled: %w", err)
	}
	return append(tunnelled.figures(direct), stalled), nil
}
