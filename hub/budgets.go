// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/api/config/v1alpha1"
	"github.com/spokelet/spokelet/internal/quota"
)

// How many seconds of writes may come at once, before they are spaced: a thousand
// works that are reported on, or a thousand pods that start, are a burst and no attack.
const (
	clusterBurst = 256
	totalBurst   = 128
)

// guaranteedShare is the part of all clusters' memory that one may hold however much the
// others do, so that a few hostile ones leave room for the reports of all others.
const guaranteedShare = 256

// userStreams of a cluster's session leave, of the 1984 that are not reserved by
// the tunnel, 130 to figures and 62 to views.
const userStreams = 1792

// addBudgets makes what all parts count by, and its metrics.
func (h *hub) addBudgets(context.Context) error {
	h.memory, h.shared, h.writes = newBudgets(&h.opts.Config.Budget)
	h.streams = quota.NewSlots(math.MaxInt64, userStreams)
	h.sync.Limit(h.memory, h.opts.Logger.WithName("sync"))
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spokelet_hub_budget_held_bytes", Help: "Bytes that are held for clusters, at their decoded size.",
		}, func() float64 { return float64(h.memory.Held()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "spokelet_hub_budget_shared_bytes", Help: "Bytes of shared objects that are kept for clusters which may make some.",
		}, func() float64 { return float64(h.shared.Held()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "spokelet_hub_budget_refused_total", Help: "How often a cluster was refused memory, or had to wait for it.",
		}, func() float64 { return float64(h.memory.Refused()) }),
	} {
		if err := registerer().Register(c); err != nil {
			return fmt.Errorf("register budget metrics: %w", err)
		}
	}
	return nil
}

func newBudgets(c *v1alpha1.BudgetConfiguration) (memory, shared *quota.Memory, writes *quota.Writes) {
	each, all := c.ClusterWrites.Value(), c.Writes.Value()
	memory = quota.NewGuaranteedMemory(c.ClusterMemory.Value(), c.Memory.Value(), c.Memory.Value()/guaranteedShare)
	shared = quota.NewGuaranteedMemory(c.ClusterSharedMemory.Value(), c.SharedMemory.Value(), c.SharedMemory.Value()/guaranteedShare)
	return memory, shared, quota.NewWrites(
		quota.Rate{PerSecond: each, Burst: each * clusterBurst},
		quota.Rate{PerSecond: all, Burst: all * totalBurst},
	)
}
