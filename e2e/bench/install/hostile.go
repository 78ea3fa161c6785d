// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/hostile"
)

// hostileReads are the answers that honest users get in each window, quiet or not.
const hostileReads = 300

// hostile measures what a hostile spoke costs the others at most: each attack after a
// quiet window, with which its own reads are compared. The mean is geometric: the
// windows differ in what users do.
func (s *suite) hostile(ctx context.Context) ([]figure.Figure, error) {
	site, err := hostile.Prepare(ctx, s.env)
	if err != nil {
		return nil, err
	}
	defer func() { _ = site.Close() }()
	var problems []string
	var peak, rate, worst, logs float64
	var most, worstBy string
	attacks := site.Attacks()
	for _, attack := range attacks {
		calm, err := site.Quiet(ctx, attack, hostileReads)
		if err != nil {
			return nil, err
		}
		seen, err := site.Watch(ctx, attack, hostileReads)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(s.out, "bench: before: %s\nbench: %s: %s\n", calm, attack.Name, seen)
		ratio := float64(seen.Reads.Percentile(99)) / float64(calm.Reads.Percentile(99))
		logs += math.Log(ratio)
		if ratio > worst {
			worst, worstBy = ratio, attack.Name
		}
		if seen.Peak > peak {
			peak, most = seen.Peak, attack.Name
		}
		rate = max(rate, seen.Written.Rate())
		problems = append(problems, seen.Failures...)
	}
	detail := fmt.Sprintf("geometric mean of %d attacks; at most %.1f, by: %s", len(attacks), worst, worstBy)
	if len(problems) > 0 {
		detail += fmt.Sprintf("; %d requests failed, such as %.100s", len(problems), strings.ReplaceAll(problems[0], "\n", " "))
	}
	return []figure.Figure{
		{Name: "hostile.p99.ratio", Value: math.Exp(logs / float64(len(attacks))), Unit: "x", Detail: detail},
		{Name: "hostile.rss.mib", Value: peak, Unit: "MiB", Detail: "resident hub at most, by: " + most},
		{Name: "hostile.write.kib.s", Value: rate, Unit: "KiB/s", Detail: "written because of one cluster, after the burst"},
	}, nil
}
