// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ create prometheus.Histogram }

// newMetrics registers the engine's metrics; count is asked when they are read.
func newMetrics(r prometheus.Registerer, count func() map[string]int) (*metrics, error) {
	m := &metrics{create: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "spokelet_pod_create_seconds", Help: "Time from a pod's arrival until it is made in this cluster.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.create, stateCollector{count}} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// stateCollector counts when it is read, so that nothing has to be kept in step.
type stateCollector struct{ count func() map[string]int }

var stateDesc = prometheus.NewDesc("spokelet_pods", "Pods of the hub by state.", []string{"state"}, nil)

func (stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- stateDesc }

func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	for state, n := range c.count() {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(n), state)
	}
}
