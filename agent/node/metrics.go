// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics of a node in a kubelet's /metrics/resource (KEP-727); none has
// labels.
const (
	metricCPU    = "node_cpu_usage_seconds_total"
	metricMemory = "node_memory_working_set_bytes"
	metricSwap   = "node_swap_usage_bytes"
)

const (
	// maxMetrics bounds a kubelet's response, in bytes: three hundred pods make 300 KiB.
	maxMetrics = 8 << 20

	// maxPodSamples bounds what is kept of a kubelet's response: the samples of two
	// thousand containers. A kubelet has a few hundred.
	maxPodSamples = 10000
)

// errMalformedMetrics is returned when a response is none that a kubelet gives.
var errMalformedMetrics = errors.New("metrics cannot be read")

// sample is one value of one node, pod or container at one time.
type sample struct {
	value float64
	// millis is the time since the epoch; 0 when the kubelet states none.
	millis int64
}

// resourceMetrics is what is kept of a kubelet's /metrics/resource. An absent
// metric is nil: a kubelet that has just started has none.
type resourceMetrics struct {
	cpu, memory, swap *sample

	// pods are the samples of the hub's pods, in any order.
	pods []podSample
}

// parseMetrics reads a kubelet's /metrics/resource in the Prometheus text format
// (0.0.4). Of pods only those of the hub are kept; nil has none.
func parseMetrics(r io.Reader, pods Pods) (resourceMetrics, error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(limited)
	if limited.N <= 0 {
		err = fmt.Errorf("longer than %d bytes", maxMetrics)
	}
	var m resourceMetrics
	if err == nil {
		err = m.setNode(families)
	}
	if err == nil && pods != nil {
		m.pods, err = podSamples(families, pods)
	}
	if err != nil {
		return resourceMetrics{}, fmt.Errorf("%w: %w", errMalformedMetrics, err)
	}
	return m, nil
}

func (m *resourceMetrics) setNode(families map[string]*dto.MetricFamily) error {
	for name, target := range map[string]**sample{metricCPU: &m.cpu, metricMemory: &m.memory, metricSwap: &m.swap} {
		for _, metric := range families[name].GetMetric() {
			s, err := newSample(metric)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if len(metric.GetLabel()) > 0 {
				return fmt.Errorf("%s: labels are not expected", name)
			}
			*target = &s
		}
	}
	return nil
}

// newSample returns the value and the time of a metric that measures something.
func newSample(m *dto.Metric) (sample, error) {
	var value float64
	switch {
	case m.GetCounter() != nil:
		value = m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		value = m.GetGauge().GetValue()
	case m.GetUntyped() != nil:
		value = m.GetUntyped().GetValue()
	default:
		return sample{}, errors.New("neither a counter nor a gauge")
	}
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || m.GetTimestampMs() < 0 {
		return sample{}, errors.New("value or time is not a measurement")
	}
	return sample{value: value, millis: m.GetTimestampMs()}, nil
}

// newMetric is the opposite of newSample.
func newMetric(kind dto.MetricType, s sample, labels ...*dto.LabelPair) *dto.Metric {
	m := &dto.Metric{Label: labels}
	if kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &s.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.value}
	}
	if s.millis > 0 {
		m.TimestampMs = &s.millis
	}
	return m
}

// writeFamily writes metrics of one name in the text format.
func writeFamily(b *bytes.Buffer, name, help string, kind dto.MetricType, metrics ...*dto.Metric) {
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: metrics}
	_, _ = expfmt.MetricFamilyToText(b, family) // a buffer does not fail, and the family is complete
}

// writeNodeMetric writes a metric of the node. One that no kubelet states, or that is
// zero, is left out: readers take a zero for a broken node.
func writeNodeMetric(b *bytes.Buffer, name, help string, kind dto.MetricType, s sample) {
	if s.value > 0 {
		writeFamily(b, name, help, kind, newMetric(kind, s))
	}
}
