// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// maxStats bounds a kubelet's summary; a pod's share is some 5 KiB.
const maxStats = 16 << 20

// summary is the kubelet's stats.Summary with, beside it, what is missing from
// it. Readers of a Summary do not see the rest.
type summary struct {
	stats.Summary `json:",inline"`

	// MissingNodes are the nodes whose kubelet did not answer, at most
	// maxMissing of them; MissingNodeCount counts all.
	MissingNodes     []string `json:"spokeletMissingNodes,omitempty"`
	MissingNodeCount int      `json:"spokeletMissingNodeCount"`
}

// parseStats reads the node's part of a kubelet's /stats/summary.
func parseStats(r io.Reader) (stats.NodeStats, error) {
	var s struct {
		Node stats.NodeStats `json:"node"`
	}
	limited := &io.LimitedReader{R: r, N: maxStats + 1}
	err := json.NewDecoder(limited).Decode(&s)
	if limited.N <= 0 {
		err = errors.New("too long")
	}
	if err != nil {
		return stats.NodeStats{}, fmt.Errorf("%w: %w", errFigures, err)
	}
	return s.Node, nil
}

// stats is /stats/summary: the sums over the nodes, and no pods.
func (s *Scraper) stats(ctx context.Context) ([]byte, error) {
	// Not with only_cpu_and_memory: that form lacks the file systems.
	answers := askAll(ctx, s.config.Transport, s.config.Nodes.Nodes(), "/stats/summary", parseStats)
	silent := missing(s.config.Logger, answers)
	if len(silent) == len(answers) {
		return nil, fmt.Errorf("%w: %d of them", errSilent, len(answers))
	}
	var all []stats.NodeStats
	cpu := map[string]sample{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		all = append(all, a.value)
		if c := a.value.CPU; c != nil && c.UsageCoreNanoSeconds != nil {
			cpu[a.node] = sample{value: float64(*c.UsageCoreNanoSeconds), millis: c.Time.UnixMilli()}
		}
	}
	total := sumStats(all)
	total.NodeName = s.config.Name
	s.mu.Lock()
	nanos := s.statsCPU.add(cpu, present(answers))
	s.mu.Unlock()
	if total.CPU != nil {
		total.CPU.UsageCoreNanoSeconds = positive(uint64(nanos))
	}
	body, err := json.Marshal(summary{
		Summary:          stats.Summary{Node: total, Pods: []stats.PodStats{}},
		MissingNodes:     silent[:min(len(silent), maxMissing)],
		MissingNodeCount: len(silent),
	})
	if err != nil {
		return nil, fmt.Errorf("summary cannot be written: %w", err)
	}
	return body, nil
}

// sumStats adds up what adds up. Figures of one machine, such as its network
// interfaces and process limits, are left out.
func sumStats(all []stats.NodeStats) stats.NodeStats {
	var total stats.NodeStats
	for _, n := range all {
		if total.StartTime.IsZero() || n.StartTime.Before(&total.StartTime) {
			total.StartTime = n.StartTime
		}
	}
	total.CPU = sumCPU(all)
	total.Memory = sumMemory(all)
	total.Fs = sumFs(all, func(n stats.NodeStats) *stats.FsStats { return n.Fs })
	image := sumFs(all, func(n stats.NodeStats) *stats.FsStats {
		if n.Runtime == nil {
			return nil
		}
		return n.Runtime.ImageFs
	})
	if image != nil {
		total.Runtime = &stats.RuntimeStats{ImageFs: image}
	}
	return total
}

func sumCPU(all []stats.NodeStats) *stats.CPUStats {
	var times []metav1.Time
	var total stats.CPUStats
	for _, n := range all {
		if n.CPU == nil {
			continue
		}
		times = append(times, n.CPU.Time)
		add(&total.UsageNanoCores, n.CPU.UsageNanoCores)
	}
	if len(times) == 0 {
		return nil
	}
	total.Time = mean(times)
	return &total
}

func sumMemory(all []stats.NodeStats) *stats.MemoryStats {
	var times []metav1.Time
	var total stats.MemoryStats
	for _, n := range all {
		if n.Memory == nil {
			continue
		}
		times = append(times, n.Memory.Time)
		add(&total.AvailableBytes, n.Memory.AvailableBytes)
		add(&total.UsageBytes, n.Memory.UsageBytes)
		add(&total.WorkingSetBytes, n.Memory.WorkingSetBytes)
		add(&total.RSSBytes, n.Memory.RSSBytes)
	}
	if len(times) == 0 {
		return nil
	}
	total.Time = mean(times)
	return &total
}

func sumFs(all []stats.NodeStats, of func(stats.NodeStats) *stats.FsStats) *stats.FsStats {
	var times []metav1.Time
	var total stats.FsStats
	for _, n := range all {
		fs := of(n)
		if fs == nil {
			continue
		}
		times = append(times, fs.Time)
		add(&total.AvailableBytes, fs.AvailableBytes)
		add(&total.CapacityBytes, fs.CapacityBytes)
		add(&total.UsedBytes, fs.UsedBytes)
		add(&total.InodesFree, fs.InodesFree)
		add(&total.Inodes, fs.Inodes)
		add(&total.InodesUsed, fs.InodesUsed)
	}
	if len(times) == 0 {
		return nil
	}
	total.Time = mean(times)
	return &total
}

// add leaves a sum absent while every part is absent or zero, and keeps it at
// its limit rather than let it run over.
func add(sum **uint64, part *uint64) {
	if part == nil || *part == 0 {
		return
	}
	total := *part
	if *sum != nil {
		if total += **sum; total < *part {
			total = ^uint64(0)
		}
	}
	*sum = &total
}

func positive(v uint64) *uint64 {
	if v == 0 {
		return nil
	}
	return &v
}

func mean(times []metav1.Time) metav1.Time {
	var offset time.Duration
	for _, t := range times {
		offset += t.Sub(times[0].Time) / time.Duration(len(times))
	}
	return metav1.NewTime(times[0].Add(offset))
}
