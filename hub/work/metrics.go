// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of writing a status, values of the label "result".
const (
	resultWritten   = "written"
	resultUnchanged = "unchanged"
	resultConflict  = "conflict"
	resultError     = "error"
)

type metrics struct {
	writes  *prometheus.CounterVec
	latency prometheus.Histogram
	way     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_work_status_writes_total", Help: "Statuses of works by what became of writing them.",
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spokelet_work_status_write_latency_seconds", Help: "Time from the arrival of a status to its write.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		way: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "spokelet_work_status_latency_seconds",
			Help:    "Time from an event in the spoke to the write of the status that tells of it, less the one way over the network.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.writes, m.latency, m.way} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register work metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) wrote(result string) { m.writes.WithLabelValues(result).Inc() }

func (m *metrics) written(r report) {
	m.wrote(resultWritten)
	m.latency.Observe(time.Since(r.received).Seconds())
	if !r.since.IsZero() {
		m.way.Observe(time.Since(r.since).Seconds())
	}
}
