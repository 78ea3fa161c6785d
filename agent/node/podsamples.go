// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spokelet/spokelet/api/wire"
)

// maxPodsAnswered bounds the pods in one answer of the door: some 20 MiB.
const maxPodsAnswered = 10000

// podFamily is a metric of pods or of their containers.
type podFamily struct {
	name, kind, help string
	container        bool
	// required: a container is left out whole while this is zero or absent. Readers
	// take it for a fault, and leave out its pod.
	required bool
	// omitZero: a zero is as good as no figure.
	omitZero bool
}

// podFamilies are a kubelet's, in the order of their names.
var podFamilies = []podFamily{
	{
		name: "container_cpu_usage_seconds_total", kind: "counter", container: true, required: true,
		help: "Cumulative cpu time consumed by the container in core-seconds",
	},
	{
		name: "container_memory_working_set_bytes", kind: "gauge", container: true, required: true,
		help: "Current working set of the container in bytes",
	},
	{
		name: "container_start_time_seconds", kind: "gauge", container: true, omitZero: true,
		help: "Start time of the container since unix epoch in seconds",
	},
	{
		name: "container_swap_limit_bytes", kind: "gauge", container: true,
		help: "Current amount of the container swap limit in bytes. Reported only on non-windows systems",
	},
	{
		name: "container_swap_usage_bytes", kind: "gauge", container: true,
		help: "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
	},
	{name: "pod_cpu_usage_seconds_total", kind: "counter", omitZero: true, help: "Cumulative cpu time consumed by the pod in core-seconds"},
	{name: "pod_memory_working_set_bytes", kind: "gauge", omitZero: true, help: "Current working set of the pod in bytes"},
	{
		name: "pod_swap_usage_bytes", kind: "gauge",
		help: "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
	},
}

var podFamilyOf = func() map[string]int {
	index := make(map[string]int, len(podFamilies))
	for i, f := range podFamilies {
		index[f.name] = i
	}
	return index
}()

// podSample is one sample of a pod of ours, or of one of its containers.
type podSample struct {
	key       wire.PodKey
	container string // "" for the pod as a whole
	family    int    // index in podFamilies
	sample    sample
}

// compare orders figures by pod, container and family, the newest of them first.
func (f podSample) compare(other podSample) int {
	return cmp.Or(
		compareKeys(f.key, other.key),
		cmp.Compare(f.container, other.container),
		cmp.Compare(f.family, other.family),
		-cmp.Compare(f.sample.millis, other.sample.millis),
	)
}

func (f podSample) sameSeries(other podSample) bool {
	return f.key == other.key && f.container == other.container && f.family == other.family
}

func (f podSample) sameContainer(other podSample) bool {
	return f.key == other.key && f.container == other.container
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

// writePodFigures writes the families of containers, or those of pods. Figures
// are in the order of their pods.
func writePodFigures(b *bytes.Buffer, figures []podSample, containers bool) {
	for family, of := range podFamilies {
		if of.container != containers {
			continue
		}
		headed := false
		for _, f := range figures {
			if f.family != family || of.omitZero && f.sample.value == 0 {
				continue
			}
			if !headed {
				writeHead(b, of.name, of.kind, of.help)
				headed = true
			}
			f.write(b)
		}
	}
}

// write writes a line of the text format. No part of the labels has anything to
// escape.
func (f podSample) write(b *bytes.Buffer) {
	b.WriteString(podFamilies[f.family].name)
	b.WriteByte('{')
	if f.container != "" {
		fmt.Fprintf(b, "container=%q,", f.container)
	}
	fmt.Fprintf(b, "namespace=%q,pod=%q} ", f.key.Namespace, f.key.Name)
	writeSample(b, f.sample)
}

// writeSample ends a line with a value and, where it is known, its time.
func writeSample(b *bytes.Buffer, s sample) {
	b.WriteString(strconv.FormatFloat(s.value, 'g', -1, 64))
	if s.millis > 0 {
		b.WriteByte(' ')
		b.WriteString(strconv.FormatInt(s.millis, 10))
	}
	b.WriteByte('\n')
}
