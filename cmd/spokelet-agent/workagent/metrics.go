// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of writing a status, values of the label "result".
const (
	resultWritten   = "written"
	resultUnchanged = "unchanged"
	resultConflict  = "conflict"
	resultError     = "error"
)

// metrics are those that a hub has of its writes.
type metrics struct {
	writes  *prometheus.CounterVec
	latency prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_work_status_writes_total", Help: "Statuses of works by what became of writing them.",
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spokelet_work_status_write_latency_seconds", Help: "Time from a status to its write on the hub.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
	for _, c := range []prometheus.Collector{m.writes, m.latency} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register work metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) wrote(result string) { m.writes.WithLabelValues(result).Inc() }
