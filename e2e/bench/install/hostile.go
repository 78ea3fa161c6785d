// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"strings"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/hostile"
)

// hostileReads are the answers that honest users get in each window, quiet or not.
const hostileReads = 300

// hostile measures what a hostile spoke costs the others at most: each attack in turn
// with a quiet window of as many reads.
func (s *suite) hostile(ctx context.Context) ([]figure.Figure, error) {
	site, err := hostile.Prepare(ctx, s.env)
	if err != nil {
		return nil, err
	}
	defer func() { _ = site.Close() }()
	var quiet, attacked figure.Durations
	var problems []string
	var peak, rate float64
	most := ""
	for _, attack := range site.Attacks() {
		calm, err := site.Quiet(ctx, attack, hostileReads)
		if err != nil {
			return nil, err
		}
		seen, err := site.Watch(ctx, attack, hostileReads)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(s.out, "bench: before: %s\nbench: %s: %s\n", calm, attack.Name, seen)
		// As many of each: a percentile of more samples is of rarer events.
		n := min(len(calm.Reads), len(seen.Reads))
		quiet, attacked = append(quiet, calm.Reads[:n]...), append(attacked, seen.Reads[:n]...)
		if seen.Peak > peak {
			peak, most = seen.Peak, attack.Name
		}
		rate = max(rate, seen.Written.Rate())
		problems = append(problems, seen.Failures...)
	}
	q, a := quiet.Percentile(99), attacked.Percentile(99)
	detail := fmt.Sprintf("p99 %s under attack, %s quiet, n=%d", a, q, len(quiet))
	if len(problems) > 0 {
		detail += fmt.Sprintf("; %d requests failed, such as %.100s", len(problems), strings.ReplaceAll(problems[0], "\n", " "))
	}
	return []figure.Figure{
		{Name: "hostile.p99.ratio", Value: float64(a) / float64(q), Unit: "x", Detail: detail},
		{Name: "hostile.rss.mib", Value: peak, Unit: "MiB", Detail: "resident hub at most, by: " + most},
		{Name: "hostile.write.kib.s", Value: rate, Unit: "KiB/s", Detail: "written because of one cluster, after the burst"},
	}, nil
}
