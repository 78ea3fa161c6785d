// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/api/wire"
)

// maxPodsAnswered bounds the pods in one answer of the door: some 20 MiB.
const maxPodsAnswered = 10000

// podFamily is a metric of pods or of their containers.
type podFamily struct {
	name, help string
	kind       dto.MetricType
	container  bool
	// required: a container is left out whole while this is zero or absent. Readers
	// take it for a fault, and leave out its pod.
	required bool
	// omitZero: a zero means the same as no sample.
	omitZero bool
}

// podFamilies are a kubelet's, in the order of their names.
var podFamilies = []podFamily{
	{
		name: "container_cpu_usage_seconds_total", kind: dto.MetricType_COUNTER, container: true, required: true,
		help: "Cumulative cpu time consumed by the container in core-seconds",
	},
	{
		name: "container_memory_working_set_bytes", kind: dto.MetricType_GAUGE, container: true, required: true,
		help: "Current working set of the container in bytes",
	},
	{
		name: "container_start_time_seconds", kind: dto.MetricType_GAUGE, container: true, omitZero: true,
		help: "Start time of the container since unix epoch in seconds",
	},
	{
		name: "container_swap_limit_bytes", kind: dto.MetricType_GAUGE, container: true,
		help: "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
	},
	{
		name: "container_swap_usage_bytes", kind: dto.MetricType_GAUGE, container: true,
		help: "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
	},
	{
		name: "pod_cpu_usage_seconds_total", kind: dto.MetricType_COUNTER, omitZero: true,
		help: "Cumulative cpu time consumed by the pod in core-seconds",
	},
	{
		name: "pod_memory_working_set_bytes", kind: dto.MetricType_GAUGE, omitZero: true,
		help: "Current working set of the pod in bytes",
	},
	{
		name: "pod_swap_usage_bytes", kind: dto.MetricType_GAUGE,
		help: "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
	},
}

// podSample is one sample of a pod of ours, or of one of its containers.
type podSample struct {
	key       wire.PodKey
	container string // "" for the pod as a whole
	family    int    // index in podFamilies
	sample    sample
}

// podSamples returns the samples of the hub's pods, under the names that they have on
// the hub.
func podSamples(families map[string]*dto.MetricFamily, pods Pods) ([]podSample, error) {
	var all []podSample
	for i, family := range podFamilies {
		for _, metric := range families[family.name].GetMetric() {
			p, ok, err := newPodSample(i, metric, pods)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", family.name, err)
			}
			if !ok {
				continue
			}
			if len(all) == maxPodSamples {
				return nil, fmt.Errorf("more than %d samples of pods", maxPodSamples)
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// newPodSample returns ok false when the metric is not of a pod of the hub.
func newPodSample(family int, metric *dto.Metric, pods Pods) (p podSample, ok bool, err error) {
	labels := map[string]string{}
	for _, l := range metric.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if len(labels) == 0 {
		return p, false, errors.New("labels are expected")
	}
	key, _, ok := pods.HubPod(labels["namespace"], labels["pod"])
	if !ok || (labels["container"] != "") != podFamilies[family].container {
		return p, false, nil
	}
	s, err := newSample(metric)
	return podSample{key: key, container: labels["container"], family: family, sample: s}, true, err
}

// compare orders figures by pod, container and family, the newest of them first.
func (p podSample) compare(other podSample) int {
	return cmp.Or(
		compareKeys(p.key, other.key),
		cmp.Compare(p.container, other.container),
		cmp.Compare(p.family, other.family),
		-cmp.Compare(p.sample.millis, other.sample.millis),
	)
}

func (p podSample) sameSeries(other podSample) bool {
	return p.key == other.key && p.container == other.container && p.family == other.family
}

func (p podSample) sameContainer(other podSample) bool {
	return p.key == other.key && p.container == other.container
}

func compareKeys(a, b wire.PodKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// mergePodSamples makes of the kubelets' figures what is answered: each series once,
// containers whole or not at all, no more than most pods. It returns how many
// pods are left out.
func mergePodSamples(all []podSample, most int) (kept []podSample, pods int) {
	slices.SortFunc(all, podSample.compare)
	// Two kubelets have a pod that was deleted and made anew elsewhere.
	all = slices.CompactFunc(all, podSample.sameSeries)
	kept = all[:0]
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].sameContainer(all[0]) {
			n++
		}
		if isComplete(all[:n]) {
			kept = append(kept, all[:n]...)
		}
		all = all[n:]
	}
	return limitPods(kept, most)
}

// isComplete reports whether the figures of one container, or of a pod without its
// containers, may be shown.
func isComplete(figures []podSample) bool {
	container := figures[0].container
	if container == "" {
		return true
	}
	if len(validation.IsDNS1123Label(container)) > 0 {
		return false
	}
	needed := 0
	for _, f := range figures {
		if podFamilies[f.family].required && f.sample.value > 0 {
			needed++
		}
	}
	return needed == requiredFamilies
}

// requiredFamilies counts what a container must have: CPU and memory.
const requiredFamilies = 2

// limitPods cuts sorted figures after so many pods.
func limitPods(figures []podSample, most int) (kept []podSample, left int) {
	pods, end := 0, len(figures)
	for i, f := range figures {
		if i > 0 && f.key == figures[i-1].key {
			continue
		}
		if pods++; pods == most+1 {
			end = i
		}
	}
	return figures[:end], max(0, pods-most)
}

// writePodSamples writes the families of containers, or those of pods, with their
// samples in order.
func writePodSamples(b *bytes.Buffer, samples []podSample, containers bool) {
	for i, family := range podFamilies {
		if family.container != containers {
			continue
		}
		var metrics []*dto.Metric
		for _, p := range samples {
			if p.family == i && !(family.omitZero && p.sample.value == 0) {
				metrics = append(metrics, newMetric(family.kind, p.sample, p.labels()...))
			}
		}
		if len(metrics) > 0 {
			writeFamily(b, family.name, family.help, family.kind, metrics...)
		}
	}
}

func (p podSample) labels() []*dto.LabelPair {
	pair := func(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
	labels := []*dto.LabelPair{pair("namespace", p.key.Namespace), pair("pod", p.key.Name)}
	if p.container == "" {
		return labels
	}
	return append([]*dto.LabelPair{pair("container", p.container)}, labels...)
}
