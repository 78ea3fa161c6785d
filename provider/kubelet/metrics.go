// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/spokelet/spokelet/api/wire"
)

// maxMetricLine bounds a line of the text format. Names of a namespace, a pod and a
// container together have less than 400 bytes.
const maxMetricLine = 4 << 10

// Labels by which the families of /metrics/resource tell pods and containers.
const (
	labelNamespace = "namespace"
	labelPod       = "pod"
	labelContainer = "container"
)

// metricFamily is a family of /metrics/resource.
type metricFamily struct {
	kind string
	// labels is how many a sample has, no more and no less.
	labels int
	// bit is the family's in a set of families.
	bit uint16
}

const (
	ofNode      = 0 // no labels
	ofPod       = 2 // namespace and pod
	ofContainer = 3 // and container
)

// metricFamilies are those that are passed on: a kubelet's (KEP-727), and what agents
// say of what is missing.
var metricFamilies = map[string]metricFamily{
	"container_cpu_usage_seconds_total":  {"counter", ofContainer, 1 << 0},
	"container_memory_working_set_bytes": {"gauge", ofContainer, 1 << 1},
	"container_start_time_seconds":       {"gauge", ofContainer, 1 << 2},
	"container_swap_limit_bytes":         {"gauge", ofContainer, 1 << 3},
	"container_swap_usage_bytes":         {"gauge", ofContainer, 1 << 4},
	"node_cpu_usage_seconds_total":       {"counter", ofNode, 1 << 5},
	"node_memory_working_set_bytes":      {"gauge", ofNode, 1 << 6},
	"node_swap_usage_bytes":              {"gauge", ofNode, 1 << 7},
	"pod_cpu_usage_seconds_total":        {"counter", ofPod, 1 << 8},
	"pod_memory_working_set_bytes":       {"gauge", ofPod, 1 << 9},
	"pod_swap_usage_bytes":               {"gauge", ofPod, 1 << 10},
	"resource_scrape_error":              {"gauge", ofNode, 1 << 11},
	"scrape_error":                       {"gauge", ofNode, 1 << 12},
	wire.MetricMissingNodes:              {"gauge", ofNode, 1 << 13},
	wire.MetricMissingPods:               {"gauge", ofNode, 1 << 14},
}

// metricObject is what samples are of: a container, a pod without one, or the node,
// which has no name here.
type metricObject struct{ namespace, pod, container string }

// metricFilter copies the text format (0.0.4) line by line. What it writes it makes
// anew from what was parsed, so that readers see what was checked.
type metricFilter struct {
	nodeScope
	out    *bufio.Writer
	parser expfmt.TextParser
	line   []byte

	help   map[string]string // by family
	headed uint16            // the families that have begun
	// seen has the families of each object that have been written: readers may refuse
	// an answer with two samples of one series.
	seen map[metricObject]uint16
}

// filterMetrics is a summaryFilter of /metrics/resource.
func filterMetrics(in *limitedReader, out *bufio.Writer, s nodeScope) error {
	f := &metricFilter{
		nodeScope: s, out: out, parser: expfmt.NewTextParser(model.LegacyValidation),
		help: map[string]string{}, seen: map[metricObject]uint16{},
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxMetricLine), maxMetricLine)
	for lines.Scan() {
		if err := f.read(lines.Bytes()); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%w: a line is longer than %d bytes", errFigures, maxMetricLine)
	case err != nil && !errors.Is(err, errAnswer):
		return fmt.Errorf("answer was cut off: %w", err)
	default:
		return err
	}
}

// read takes a line. One of another family, or of what is not in the scope, is left out.
func (f *metricFilter) read(line []byte) error {
	if comment, ok := bytes.CutPrefix(line, []byte("# HELP ")); ok {
		f.readHelp(string(comment))
		return nil
	}
	end := bytes.IndexAny(line, " \t{")
	if end < 0 {
		return nil
	}
	name := string(line[:end])
	family, ok := metricFamilies[name]
	if !ok {
		return nil
	}
	s, err := f.parse(line, name)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errFigures, name, err)
	}
	if !s.isMeasured() || !f.isAllowed(s, family) {
		return nil
	}
	return f.write(name, family, s)
}

// readHelp keeps a family's text until its first sample.
func (f *metricFilter) readHelp(comment string) {
	name, text, _ := strings.Cut(comment, " ")
	if _, ok := metricFamilies[name]; ok && utf8.ValidString(text) && !strings.Contains(text, `\`) {
		f.help[name] = strings.TrimSpace(text)
	}
}

// metricSample is one line, parsed.
type metricSample struct {
	metricObject
	labels int
	value  float64
	millis *int64
}

// isMeasured: what is measured is a number and not negative.
func (s metricSample) isMeasured() bool {
	return s.value >= 0 && !math.IsInf(s.value, 0) && (s.millis == nil || *s.millis >= 0)
}

// parse reads a line with a sample of a family.
func (f *metricFilter) parse(line []byte, name string) (metricSample, error) {
	f.line = append(append(f.line[:0], line...), '\n')
	families, err := f.parser.TextToMetricFamilies(bytes.NewReader(f.line))
	if err != nil {
		return metricSample{}, err
	}
	metrics := families[name].GetMetric()
	if len(families) != 1 || len(metrics) != 1 {
		return metricSample{}, errors.New("one sample is expected in a line")
	}
	m := metrics[0]
	s := metricSample{labels: len(m.GetLabel()), value: m.GetUntyped().GetValue(), millis: m.TimestampMs}
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case labelNamespace:
			s.namespace = l.GetValue()
		case labelPod:
			s.pod = l.GetValue()
		case labelContainer:
			s.container = l.GetValue()
		}
	}
	return s, nil
}

// isAllowed says whether a sample has the labels of its family, and they name what is
// in the scope.
func (f *metricFilter) isAllowed(s metricSample, family metricFamily) bool {
	if s.labels != family.labels {
		return false
	}
	if family.labels == ofNode {
		return true
	}
	pod, ok := f.pod(s.namespace, s.pod)
	if !ok {
		return false
	}
	if family.labels == ofPod {
		return true
	}
	return hasContainer(pod, s.container)
}

// write writes a sample, if it is the first of its series.
func (f *metricFilter) write(name string, family metricFamily, s metricSample) error {
	written, known := f.seen[s.metricObject]
	if written&family.bit != 0 {
		return nil
	}
	if !known {
		if err := f.held.Grow(seenCost); err != nil {
			return err
		}
	}
	f.seen[s.metricObject] = written | family.bit
	if f.headed&family.bit == 0 {
		f.headed |= family.bit
		if help := f.help[name]; help != "" {
			f.writeText("# HELP ", name, " ", help, "\n")
		}
		f.writeText("# TYPE ", name, " ", family.kind, "\n")
	}
	f.writeText(name)
	switch family.labels {
	case ofContainer:
		// No name of the hub's has anything to escape.
		f.writeText(`{container="`, s.container, `",namespace="`, s.namespace, `",pod="`, s.pod, `"}`)
	case ofPod:
		f.writeText(`{namespace="`, s.namespace, `",pod="`, s.pod, `"}`)
	}
	f.writeText(" ", strconv.FormatFloat(s.value, 'g', -1, 64))
	if s.millis != nil {
		f.writeText(" ", strconv.FormatInt(*s.millis, 10))
	}
	f.writeText("\n")
	return nil
}

// writeText writes. An error is that of the client, and is found when the writer is
// flushed.
func (f *metricFilter) writeText(parts ...string) {
	for _, p := range parts {
		_, _ = f.out.WriteString(p)
	}
}
