// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var errNoMetric = errors.New("no such metric")

// Metric returns the value of a metric without labels, from metrics in the text format
// of Prometheus.
func Metric(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s: %w", name, errNoMetric)
}
