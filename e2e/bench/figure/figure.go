// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package figure is what benchmarks measure: a named value with its unit and
// how it came about. All benchmarks report in it.
package figure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// Figure is one measured value.
type Figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Detail string  `json:"detail,omitempty"`
}

// Budget is what a figure must meet.
type Budget struct {
	Limit float64
	// Least says that the figure must be at least the limit; otherwise it must
	// be at most the limit.
	Least bool
}

// Budgets are those of the design, by figure.
func Budgets() map[string]Budget {
	most := func(limit float64) Budget { return Budget{Limit: limit} }
	least := func(limit float64) Budget { return Budget{Limit: limit, Least: true} }
	return map[string]Budget{
		"tunnel.get.p50.ratio":     most(2),
		"tunnel.get.rps64.ratio":   least(0.65),
		"tunnel.bulk.ratio":        least(0.2),
		"tunnel.slowlink.get.rtt":  most(1.5),
		"tunnel.stalled.p99.ratio": most(1.1),
		"proxy.get.p50.ratio":      most(2.5),
		"view.get.p50.ratio":       most(2.5),
		"proxy.get.rps64.ratio":    least(0.3),
		"work.applied.p50.ms":      most(15),
		"work.bulk1000.ratio":      most(3),
		"work.feedback.p50.ms":     most(10),
		"work.feedback.max.ms":     most(100),
		"work.drift.p50.ms":        most(5),
		"agent.rss.idle.mib":       most(60),
		"agent.rss.1000works.mib":  most(100),
		"agent.unrelated.rss.mib":  most(5),
		"rest.requests.per.s":      most(0),
		"hub.rss.per.cluster.mib":  most(0.5),

		"hostile.p99.ratio":   most(2),
		"hostile.rss.mib":     most(1024),
		"hostile.write.kib.s": most(256),

		"node.exec.p50.ratio":          most(2),
		"node.logs.mbps.ratio":         least(0.3),
		"node.pod.running.overhead.ms": most(50),
		"node.pod.status.ms":           most(20),
		"node.pods600.s":               most(10),
		"node.streams1000.rss.kib":     most(64),

		"mcm.view.first.gets":          most(30),
		"mcm.view.change.gets":         most(20),
		"mcm.action.gets":              most(30),
		"mcm.view.burst500.s":          most(10),
		"mcm.action.burst500.s":        most(10),
		"mcm.rest.requests":            most(0),
		"helm.install.overhead.s":      most(1),
		"helm.agent.growth.mib":        most(10),
		"shared.change.tocluster.gets": most(12),
		"shared.change.tohub.gets":     most(12),
		"shared.1000.ratio":            most(1.5),
		"shared.10000.growth.mib":      most(60),
		"shared.rest.requests":         most(0),

		"workers.deploy.s":   most(10),
		"workers.rollback.s": most(5),
		"workers.noop.s":     most(1),
		"wrangler.deploy.s":  most(10),
		"wrangler.tail.ms":   most(50),
		"workers.build.mib":  most(256),
	}
}

// noise is what a figure may be off its budget for the machine's sake.
const noise = 1.1

// Verdict compares a value with its budget: "ok", "over" or, without a budget,
// nothing.
func Verdict(f Figure) string {
	budget, found := Budgets()[f.Name]
	if !found {
		return ""
	}
	met := f.Value <= budget.Limit*noise
	sign := "<="
	if budget.Least {
		met, sign = f.Value >= budget.Limit/noise, ">="
	}
	word := "ok"
	if !met {
		word = "OVER"
	}
	return fmt.Sprintf("%s %s %g", word, sign, budget.Limit)
}

// Print writes the table that people read.
func Print(w io.Writer, figures []Figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tVALUE\tUNIT\tBUDGET\tDETAIL")
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%.4g\t%s\t%s\t%s\n", f.Name, f.Value, f.Unit, Verdict(f), f.Detail)
	}
	return table.Flush()
}

// Write stores the figures for machines.
func Write(path string, figures []Figure) error {
	data, err := json.MarshalIndent(map[string]any{"figures": figures}, "", "  ")
	if err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("figures: %w", err)
	}
	return nil
}

// Durations are samples of one duration.
type Durations []time.Duration

// Percentile returns the value that p percent of the samples do not exceed, by
// nearest rank.
func (d Durations) Percentile(p float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Milliseconds is a duration as a figure's value.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Median is the middle of a few values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
