// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// The figures of a node in a kubelet's /metrics/resource (KEP-727); none has
// labels.
const (
	metricCPU    = "node_cpu_usage_seconds_total"
	metricMemory = "node_memory_working_set_bytes"
	metricSwap   = "node_swap_usage_bytes"
)

const (
	// maxLine bounds a line of the text format; those of pods are far shorter.
	maxLine = 16 << 10

	// maxMetrics bounds a kubelet's answer: three hundred pods make 300 KiB.
	maxMetrics = 8 << 20

	// maxPodFigures bounds what is kept of a kubelet's answer: the figures of two
	// thousand containers. A kubelet has a few hundred.
	maxPodFigures = 10000
)

// errMalformedMetrics is returned when a kubelet's answer is not what a kubelet answers.
var errMalformedMetrics = errors.New("figures cannot be read")

// sample is one value of one node, pod or container at one time.
type sample struct {
	value float64
	// millis is the time since the epoch; 0 when the kubelet does not say.
	millis int64
}

// resourceMetrics are what a kubelet measures of its node. An absent figure is nil: a
// kubelet that has just started has none.
type resourceMetrics struct {
	cpu, memory, swap *sample

	// pods are the figures of the pods that are ours, as they came.
	pods []podSample
}

// parseMetrics reads a kubelet's /metrics/resource in the Prometheus text format
// (0.0.4), line by line. Of pods, by far most of it, only those that are ours
// are kept; nil has none.
func parseMetrics(r io.Reader, pods Pods) (resourceMetrics, error) {
	var f resourceMetrics
	lines := bufio.NewScanner(io.LimitReader(r, maxMetrics+1))
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	read := 0
	for lines.Scan() {
		line := lines.Text()
		if read += len(line) + 1; read > maxMetrics {
			return resourceMetrics{}, fmt.Errorf("%w: longer than %d bytes", errMalformedMetrics, maxMetrics)
		}
		if err := f.read(line, pods); err != nil {
			return resourceMetrics{}, fmt.Errorf("%w: %w", errMalformedMetrics, err)
		}
	}
	if err := lines.Err(); err != nil {
		return resourceMetrics{}, fmt.Errorf("%w: %w", errMalformedMetrics, err)
	}
	return f, nil
}

// read takes one line; one that is about something else is skipped.
func (f *resourceMetrics) read(line string, pods Pods) error {
	end := strings.IndexAny(line, " \t{")
	if end < 0 {
		return nil
	}
	name, rest := line[:end], line[end:]
	if target := f.target(name); target != nil {
		s, err := parseSample(rest)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		*target = &s
		return nil
	}
	family, ok := podFamilyOf[name]
	if !ok || pods == nil {
		return nil
	}
	figure, ok, err := parsePodFigure(rest, family, pods)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !ok {
		return nil
	}
	if len(f.pods) == maxPodFigures {
		return fmt.Errorf("more than %d figures of pods", maxPodFigures)
	}
	f.pods = append(f.pods, figure)
	return nil
}

// target is where the node's figure of that name belongs; nil when it is none.
func (f *resourceMetrics) target(name string) **sample {
	switch name {
	case metricCPU:
		return &f.cpu
	case metricMemory:
		return &f.memory
	case metricSwap:
		return &f.swap
	}
	return nil
}

// parsePodFigure reads a line after its name. ok is false when it is not about a
// pod of ours.
func parsePodFigure(rest string, family int, pods Pods) (f podSample, ok bool, err error) {
	labels, rest, err := parseLabels(rest)
	if err != nil {
		return podSample{}, false, err
	}
	key, _, ok := pods.HubPod(labels.namespace, labels.pod)
	if !ok || (labels.container != "") != podFamilies[family].container {
		return podSample{}, false, nil
	}
	s, err := parseSample(rest)
	if err != nil {
		return podSample{}, false, err
	}
	return podSample{key: key, container: strings.Clone(labels.container), family: family, sample: s}, true, nil
}

// podLabels are those of a figure of a pod or a container.
type podLabels struct{ namespace, pod, container string }

var errLabels = errors.New("labels cannot be read")

// parseLabels reads {container="c",namespace="n",pod="p"} and returns what
// follows. Labels of other names are skipped. Values are returned as written:
// no name of a pod or a container has anything to escape.
func parseLabels(text string) (l podLabels, rest string, err error) {
	rest, ok := strings.CutPrefix(strings.TrimLeft(text, " \t"), "{")
	for ok {
		rest = strings.TrimLeft(rest, " \t")
		if after, done := strings.CutPrefix(rest, "}"); done {
			return l, after, nil
		}
		var name, value string
		if name, value, rest, ok = cutLabel(rest); !ok {
			break
		}
		switch name {
		case "namespace":
			l.namespace = value
		case "pod":
			l.pod = value
		case "container":
			l.container = value
		}
		rest = strings.TrimPrefix(strings.TrimLeft(rest, " \t"), ",")
	}
	return podLabels{}, "", errLabels
}

// cutLabel cuts name="value" off a text.
func cutLabel(text string) (name, value, rest string, ok bool) {
	name, rest, ok = strings.Cut(text, `="`)
	if !ok {
		return "", "", "", false
	}
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return strings.TrimSpace(name), rest[:i], rest[i+1:], true
		}
	}
	return "", "", "", false
}

// parseSample reads the value and time of a line, after its name and labels.
func parseSample(rest string) (sample, error) {
	if strings.HasPrefix(rest, "{") {
		return sample{}, errors.New("labels are not expected")
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return sample{}, errors.New("a value and perhaps a time are expected")
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return sample{}, errors.New("the value is not a measure")
	}
	s := sample{value: value}
	if len(fields) == 2 {
		if s.millis, err = strconv.ParseInt(fields[1], 10, 64); err != nil || s.millis < 0 {
			return sample{}, errors.New("the time is not in milliseconds")
		}
	}
	return s, nil
}
