// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"time"

	"github.com/spokelet/spokelet/e2e/bench/figure"
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
	// SlowRounds and SlowGets are the rounds on the slow link, and the requests
	// of each.
	SlowRounds, SlowGets int
}

// FullPlan takes about a minute and a half.
func FullPlan() Plan {
	return Plan{Rounds: 21, Gets: 600, Busy: 300 * time.Millisecond, Bulk: 48 << 20, SlowRounds: 5, SlowGets: 40}
}

const (
	rtt      = 50 * time.Millisecond
	linkRate = 100e6 / 8 // bytes per second
)

// kind is a way through the tunnel.
type kind struct {
	prefix string
	start  func(ctx context.Context, a *authority, line *Line) (*session, error)
}

func kinds() []kind {
	return []kind{{"", overKonnectivity}, {"pipe.h2.", overReverse}}
}

// Run measures the full plan.
func Run(ctx context.Context) ([]figure.Figure, error) { return Measure(ctx, FullPlan()) }

// Measure measures all figures of the tunnel.
func Measure(ctx context.Context, plan Plan) ([]figure.Figure, error) {
	a, err := newAuthority()
	if err != nil {
		return nil, err
	}
	fast, err := measureFast(ctx, a, plan)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds() {
		f, err := measureSlow(ctx, a, k, plan)
		if err != nil {
			return nil, fmt.Errorf("%sslow link: %w", k.prefix, err)
		}
		fast = append(fast, f)
	}
	return fast, nil
}

// measureFast measures what needs no slow link.
func measureFast(ctx context.Context, a *authority, plan Plan) ([]figure.Figure, error) {
	base, err := startDirect(ctx, a)
	if err != nil {
		return nil, err
	}
	defer base.stop()
	var paths []*path
	var sessions []*session
	defer func() {
		for _, s := range sessions {
			s.stop()
		}
	}()
	for _, k := range kinds() {
		s, err := k.start(ctx, a, nil)
		if err != nil {
			return nil, fmt.Errorf("%ssession: %w", k.prefix, err)
		}
		sessions = append(sessions, s)
		paths = append(paths, &path{prefix: k.prefix, transport: s.session})
	}
	direct := &path{transport: base.transport}
	for range plan.Rounds {
		if err := round(ctx, plan, append([]*path{direct}, paths...)); err != nil {
			return nil, err
		}
	}
	var figures []figure.Figure
	for _, p := range paths {
		figures = append(figures, p.figures(direct)...)
		f, err := measureStalled(ctx, p, plan)
		if err != nil {
			return nil, fmt.Errorf("%sstalled: %w", p.prefix, err)
		}
		figures = append(figures, f)
	}
	return figures, nil
}
