// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVerdict(t *testing.T) {
	cases := map[string]struct {
		reason string
		figure Figure
		want   string
	}{
		"within":       {reason: "under the limit is ok", figure: Figure{Name: "work.applied.p50.ms", Value: 9}, want: "ok"},
		"in the noise": {reason: "a tenth is allowed for the machine", figure: Figure{Name: "work.applied.p50.ms", Value: 16}, want: "ok"},
		"over":         {reason: "more than a tenth is not", figure: Figure{Name: "work.applied.p50.ms", Value: 17}, want: "OVER"},
		"at least":     {reason: "a rate must reach its limit", figure: Figure{Name: "tunnel.bulk.ratio", Value: 0.1}, want: "OVER"},
		"rest":         {reason: "no request at rest means none", figure: Figure{Name: "rest.requests.per.s", Value: 0.01}, want: "OVER"},
		"no budget":    {reason: "an extra figure is only shown", figure: Figure{Name: "mc.work.bulk1000.ratio", Value: 1}, want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Verdict(tc.figure)
			if !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPercentileIsByNearestRank(t *testing.T) {
	samples := Durations{5, 1, 4, 2, 3}
	for p, want := range map[float64]time.Duration{0: 1, 20: 1, 50: 3, 99: 5, 100: 5} {
		if got := samples.Percentile(p); got != want {
			t.Errorf("p%g: got %d, want %d", p, got, want)
		}
	}
}
