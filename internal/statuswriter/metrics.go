// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Result is what became of writing a status, a value of the label "result".
type Result string

// What becomes of writing a status.
const (
	ResultWritten   Result = "written"
	ResultUnchanged Result = "unchanged"
	ResultConflict  Result = "conflict"
	ResultError     Result = "error"
	// ResultRefused: the same would be refused again.
	ResultRefused Result = "refused"
)

// Help is what the two latencies are of, for their readers.
type Help struct{ WriteLatency, Latency string }

// Metrics are of the writes of statuses.
type Metrics struct {
	writes                *prometheus.CounterVec
	writeLatency, latency prometheus.Histogram
}

// NewMetrics registers the metrics, unless r is nil.
func NewMetrics(r prometheus.Registerer, help Help) (*Metrics, error) {
	latency := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		})
	}
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_work_status_writes_total", Help: "Statuses of works by what became of writing them.",
		}, []string{"result"}),
		writeLatency: latency("spokelet_work_status_write_latency_seconds", help.WriteLatency),
		latency:      latency("spokelet_work_status_latency_seconds", help.Latency),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.writes, m.writeLatency, m.latency} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register work metrics: %w", err)
		}
	}
	return m, nil
}

// CountWrite counts an attempt.
func (m *Metrics) CountWrite(result Result) { m.writes.WithLabelValues(string(result)).Inc() }

// ObserveWritten counts a report that was written, and observes how long that took.
func (m *Metrics) ObserveWritten(r Report) {
	m.CountWrite(ResultWritten)
	m.writeLatency.Observe(time.Since(r.Received).Seconds())
	if !r.Since.IsZero() {
		m.latency.Observe(time.Since(r.Since).Seconds())
	}
}
