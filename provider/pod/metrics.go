// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Results of writing a status, or of asking for a token: values of the label "result".
const (
	resultIssued   = "issued"
	resultWritten  = "written"
	resultConflict = "conflict"
	resultRefused  = "refused"
	resultError    = "error"
)

type metrics struct {
	writes  *prometheus.CounterVec
	tokens  *prometheus.CounterVec
	latency prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, objects func() int) (*metrics, error) {
	m := &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_pod_status_writes_total", Help: "Statuses of pods by what became of writing them.",
		}, []string{"result"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spokelet_pod_token_requests_total", Help: "Tokens of service accounts that were asked for, by what became of that.",
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spokelet_pod_status_write_latency_seconds", Help: "Time from the arrival of a pod's status to its write.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
	watched := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spokelet_pod_objects", Help: "ConfigMaps and Secrets that are watched because pods refer to them.",
	}, func() float64 { return float64(objects()) })
	for _, c := range []prometheus.Collector{m.writes, m.tokens, m.latency, watched} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register pod metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) countWrite(result string) { m.writes.WithLabelValues(result).Inc() }
