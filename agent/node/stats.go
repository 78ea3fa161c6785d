// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// maxStats bounds a kubelet's summary; a pod's share is some 5 KiB.
	maxStats = 16 << 20

	// maxPodsOfNode bounds what is kept of it, and maxPodStatsAnswered what is
	// answered: some 20 MiB.
	maxPodsOfNode       = 2000
	maxPodStatsAnswered = 4000
)

// summaryWithMissing is the kubelet's stats.Summary with, beside it, what is missing from
// it. Readers of a Summary do not see the rest.
type summaryWithMissing struct {
	stats.Summary `json:",inline"`

	// MissingNodes are the nodes whose kubelet did not answer, at most
	// maxMissing of them; MissingNodeCount counts all.
	MissingNodes     []string `json:"spokeletMissingNodes,omitempty"`
	MissingNodeCount int      `json:"spokeletMissingNodeCount"`

	// MissingPodCount counts pods that are left out because there are too many.
	MissingPodCount int `json:"spokeletMissingPodCount,omitempty"`
}

// nodeStats is what is kept of a kubelet's summary.
type nodeStats struct {
	node stats.NodeStats
	// pods are those that are ours, under the names that they have on the hub.
	pods []stats.PodStats
}

// parseStats reads a kubelet's /stats/summary, a pod at a time. Pods that are not
// ours are skipped; nil has none.
func parseStats(r io.Reader, pods Pods) (nodeStats, error) {
	limited := &io.LimitedReader{R: r, N: maxStats + 1}
	s, err := decodeStats(json.NewDecoder(limited), pods)
	if limited.N <= 0 {
		err = errors.New("too long")
	}
	if err != nil {
		return nodeStats{}, fmt.Errorf("%w: %w", errMalformedMetrics, err)
	}
	return s, nil
}

func decodeStats(d *json.Decoder, pods Pods) (s nodeStats, err error) {
	if err := expect(d, '{'); err != nil {
		return s, err
	}
	for d.More() {
		field, err := d.Token()
		if err != nil {
			return s, err
		}
		switch field {
		case "node":
			err = d.Decode(&s.node)
		case "pods":
			s.pods, err = decodePods(d, pods)
		default:
			err = d.Decode(&json.RawMessage{})
		}
		if err != nil {
			return s, err
		}
	}
	return s, expect(d, '}')
}

// expect reads one delimiter.
func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%v is found for %v", token, want)
	}
	return err
}

// decodePods reads an array of pods and keeps ours.
func decodePods(d *json.Decoder, pods Pods) ([]stats.PodStats, error) {
	switch token, err := d.Token(); {
	case err != nil:
		return nil, err
	case token == nil: // how Go writes an empty one
		return nil, nil
	case token != json.Delim('['):
		return nil, fmt.Errorf("%v is found for an array", token)
	}
	var ours []stats.PodStats
	var raw json.RawMessage
	for d.More() {
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		pod, ok, err := decodePod(raw, pods)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if len(ours) == maxPodsOfNode {
			return nil, fmt.Errorf("more than %d pods", maxPodsOfNode)
		}
		ours = append(ours, pod)
	}
	return ours, expect(d, ']')
}

// decodePod reads a pod's part. ok is false when the pod is not ours.
func decodePod(raw []byte, pods Pods) (pod stats.PodStats, ok bool, err error) {
	var named struct {
		Ref stats.PodReference `json:"podRef"`
	}
	if pods == nil {
		return pod, false, nil
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return pod, false, err
	}
	key, uid, ok := pods.HubPod(named.Ref.Namespace, named.Ref.Name)
	if !ok {
		return pod, false, nil
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return pod, false, err
	}
	pod.PodRef.Namespace, pod.PodRef.Name = key.Namespace, key.Name
	if uid != "" {
		pod.PodRef.UID = string(uid)
	}
	for i := range pod.VolumeStats {
		if claim := pod.VolumeStats[i].PVCRef; claim != nil {
			claim.Namespace = key.Namespace
		}
	}
	return pod, true, nil
}

// statsSummary is /stats/summary: the sums over the nodes, and the pods of the hub.
func (s *Scraper) statsSummary(ctx context.Context) ([]byte, error) {
	// Not with only_cpu_and_memory: that form lacks the file systems.
	read := func(r io.Reader) (nodeStats, error) { return parseStats(r, s.config.Pods) }
	answers := getFromKubelets(ctx, s.config.Transport, s.config.Nodes.Nodes(), "/stats/summary", read)
	silent := unreachableNodes(s.config.Logger, answers)
	if s.noneResponded(len(silent), len(answers)) {
		return nil, fmt.Errorf("%w: %d of them", errNoKubelet, len(answers))
	}
	var all []stats.NodeStats
	var pods []stats.PodStats
	cpu := map[string]sample{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		all, pods = append(all, a.value.node), append(pods, a.value.pods...)
		if c := a.value.node.CPU; c != nil && c.UsageCoreNanoSeconds != nil {
			cpu[a.node] = sample{value: float64(*c.UsageCoreNanoSeconds), millis: c.Time.UnixMilli()}
		}
	}
	total := sumStats(all)
	total.NodeName = s.config.Name
	s.mu.Lock()
	nanos := s.statsCPU.add(cpu, respondedNodes(answers))
	s.mu.Unlock()
	if total.CPU != nil {
		total.CPU.UsageCoreNanoSeconds = nonZero(uint64(nanos))
	}
	pods, left := mergePodStats(pods, maxPodStatsAnswered)
	body, err := json.Marshal(summaryWithMissing{
		Summary:          stats.Summary{Node: total, Pods: pods},
		MissingNodes:     silent[:min(len(silent), maxMissing)],
		MissingNodeCount: len(silent),
		MissingPodCount:  left,
	})
	if err != nil {
		return nil, fmt.Errorf("summary cannot be written: %w", err)
	}
	return body, nil
}

// mergePodStats makes of the kubelets' pods what is answered: each once, in order,
// and not more than most. It returns how many are left out.
func mergePodStats(pods []stats.PodStats, most int) (kept []stats.PodStats, left int) {
	key := func(p stats.PodStats) wire.PodKey {
		return wire.PodKey{Namespace: p.PodRef.Namespace, Name: p.PodRef.Name}
	}
	slices.SortFunc(pods, func(a, b stats.PodStats) int {
		return cmp.Or(compareKeys(key(a), key(b)), b.StartTime.Compare(a.StartTime.Time))
	})
	// Two kubelets have a pod that was deleted and made anew elsewhere.
	pods = slices.CompactFunc(pods, func(a, b stats.PodStats) bool { return key(a) == key(b) })
	left = max(0, len(pods)-most)
	return append([]stats.PodStats{}, pods[:len(pods)-left]...), left // none is [], not null
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
	total.Time = meanTime(times)
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
	total.Time = meanTime(times)
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
	total.Time = meanTime(times)
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

func nonZero(v uint64) *uint64 {
	if v == 0 {
		return nil
	}
	return &v
}

func meanTime(times []metav1.Time) metav1.Time {
	var offset time.Duration
	for _, t := range times {
		offset += t.Sub(times[0].Time) / time.Duration(len(times))
	}
	return metav1.NewTime(times[0].Add(offset))
}
