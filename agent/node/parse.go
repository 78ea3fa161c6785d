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

// The figures of a node in a kubelet's /metrics/resource (KEP-727); neither has
// labels.
const (
	metricCPU    = "node_cpu_usage_seconds_total"
	metricMemory = "node_memory_working_set_bytes"
)

const (
	// maxLine bounds a line of the text format; those of pods are far shorter.
	maxLine = 16 << 10

	// maxMetrics bounds a kubelet's answer: three hundred pods make 300 KiB.
	maxMetrics = 8 << 20
)

// errFigures is returned when a kubelet's answer is not what a kubelet answers.
var errFigures = errors.New("figures cannot be read")

// sample is one value of one node at one time.
type sample struct {
	value float64
	// millis is the time since the epoch; 0 when the kubelet does not say.
	millis int64
}

// figures are what a kubelet measures of its node. An absent figure is nil: a
// kubelet that has just started has none.
type figures struct {
	cpu, memory *sample
}

// parseMetrics reads a kubelet's /metrics/resource in the Prometheus text format
// (0.0.4). The lines of containers and pods, by far most of it, are skipped
// unparsed.
func parseMetrics(r io.Reader) (figures, error) {
	var f figures
	lines := bufio.NewScanner(io.LimitReader(r, maxMetrics+1))
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	read := 0
	for lines.Scan() {
		line := lines.Text()
		if read += len(line) + 1; read > maxMetrics {
			return figures{}, fmt.Errorf("%w: longer than %d bytes", errFigures, maxMetrics)
		}
		for name, target := range map[string]**sample{metricCPU: &f.cpu, metricMemory: &f.memory} {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || !strings.ContainsAny(rest[:1], " \t{") {
				continue
			}
			s, err := parseSample(rest)
			if err != nil {
				return figures{}, fmt.Errorf("%w: %s: %w", errFigures, name, err)
			}
			*target = s
		}
	}
	if err := lines.Err(); err != nil {
		return figures{}, fmt.Errorf("%w: %w", errFigures, err)
	}
	return f, nil
}

// parseSample reads the value and time of a line, after its name.
func parseSample(rest string) (*sample, error) {
	if strings.HasPrefix(rest, "{") {
		return nil, errors.New("labels are not expected")
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return nil, errors.New("a value and perhaps a time are expected")
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return nil, errors.New("the value is not a measure")
	}
	s := &sample{value: value}
	if len(fields) == 2 {
		if s.millis, err = strconv.ParseInt(fields[1], 10, 64); err != nil || s.millis < 0 {
			return nil, errors.New("the time is not in milliseconds")
		}
	}
	return s, nil
}
