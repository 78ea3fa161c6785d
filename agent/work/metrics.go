// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// States of a work, values of the label "state".
const (
	stateApplied  = "applied"
	stateFailed   = "failed"
	statePending  = "pending"
	stateDeleting = "deleting"
	// stateSuspended is that of a work of which nothing is written.
	stateSuspended = "suspended"
	stateOrphaned  = "orphaned"
)

type metrics struct {
	apply   *prometheus.HistogramVec
	latency prometheus.Histogram
}

// newMetrics registers the engine's metrics; count is asked when they are read.
func newMetrics(r prometheus.Registerer, count func() map[string]int) (*metrics, error) {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &metrics{
		apply: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spokelet_work_apply_duration_seconds", Help: "Time of one server-side apply.", Buckets: buckets,
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spokelet_work_result_latency_seconds", Help: "Time from a work's arrival to its first status.", Buckets: buckets,
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.apply, m.latency, stateCollector{count}} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observeApply(d time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.apply.WithLabelValues(result).Observe(d.Seconds())
}

// observeStatus observes the first status of each version of a work.
func (m *metrics) observeStatus(w *work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outcomesOf == nil || w.reported == w.outcomesOf {
		return
	}
	w.reported = w.outcomesOf
	m.latency.Observe(time.Since(w.outcomesOf.Received).Seconds())
}

// stateCollector counts when it is read, so that nothing has to be kept in step.
type stateCollector struct{ count func() map[string]int }

var stateDesc = prometheus.NewDesc("spokelet_work_works", "Works by state.", []string{"state"}, nil)

func (stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- stateDesc }

func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	for state, n := range c.count() {
		ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(n), state)
	}
}

func (w *work) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.spec == nil:
		return stateOrphaned
	case !w.spec.MayWrite():
		return stateSuspended
	case w.spec.IsDeleting:
		return stateDeleting
	}
	for _, c := range w.conditions {
		if c.Type == conditionApplied && c.Status == metav1.ConditionFalse {
			return stateFailed
		}
		if c.Type == conditionApplied && w.outcomesOf == w.spec {
			return stateApplied
		}
	}
	return statePending
}
