// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// What became of a review.
const (
	resultAllowed = "allowed"
	resultRefused = "refused"
	resultFailed  = "failed"
)

type metrics struct{ reviewsTotal *prometheus.CounterVec }

// newMetrics registers the metrics; without a registerer they are counted for
// nobody.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{reviewsTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spokelet_admission_reviews_total",
		Help: "Reviews of ManifestWorks, by what became of them.",
	}, []string{"result"})}
	for _, result := range []string{resultAllowed, resultRefused, resultFailed} {
		m.reviewsTotal.WithLabelValues(result)
	}
	if r == nil {
		return m, nil
	}
	if err := r.Register(m.reviewsTotal); err != nil {
		return nil, fmt.Errorf("admission metrics: %w", err)
	}
	return m, nil
}
