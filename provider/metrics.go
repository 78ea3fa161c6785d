// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// readyGauge is spokelet_node_ready: 1 while a cluster's node is Ready.
type readyGauge struct {
	vec *prometheus.GaugeVec
}

func newReadyGauge(registerer prometheus.Registerer) (readyGauge, error) {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spokelet_node_ready",
		Help: "Whether the virtual node of the cluster is Ready (1) or not (0).",
	}, []string{"cluster"})
	if err := registerer.Register(vec); err != nil {
		return readyGauge{}, fmt.Errorf("node metrics cannot be registered: %w", err)
	}
	return readyGauge{vec: vec}, nil
}

func (g readyGauge) set(cluster string, ready bool) {
	value := 0.0
	if ready {
		value = 1
	}
	g.vec.WithLabelValues(cluster).Set(value)
}

func (g readyGauge) delete(cluster string) { g.vec.DeleteLabelValues(cluster) }
