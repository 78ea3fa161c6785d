// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestCounterNeverDecreases(t *testing.T) {
	type step struct {
		reason   string
		answered map[string]sample
		present  string // names, a letter each
		want     float64
	}
	steps := []step{
		{reason: "the first nodes count in full", answered: map[string]sample{"a": {10, 1}, "b": {20, 1}}, present: "abc", want: 30},
		{reason: "growth counts", answered: map[string]sample{"a": {11, 2}, "b": {22, 2}}, present: "abc", want: 33},
		{reason: "a late node counts from now on", answered: map[string]sample{"a": {11, 3}, "b": {22, 3}, "c": {1000, 3}}, present: "abc", want: 33},
		{reason: "and then counts", answered: map[string]sample{"a": {11, 4}, "b": {22, 4}, "c": {1001, 4}}, present: "abc", want: 34},
		{reason: "a silent node takes nothing away", answered: map[string]sample{"a": {12, 5}}, present: "abc", want: 35},
		{reason: "and is made up for", answered: map[string]sample{"b": {25, 6}}, present: "abc", want: 38},
		{reason: "a restart counts from zero", answered: map[string]sample{"a": {3, 7}}, present: "abc", want: 41},
		{reason: "an older answer is no restart", answered: map[string]sample{"a": {2, 6}}, present: "abc", want: 41},
		{reason: "a node that left takes nothing away", answered: map[string]sample{"a": {4, 8}}, present: "a", want: 42},
		{reason: "and is new when it is back", answered: map[string]sample{"b": {26, 9}}, present: "ab", want: 42},
	}
	var c counter
	for _, s := range steps {
		present := map[string]struct{}{}
		for name := range strings.SplitSeq(s.present, "") {
			present[name] = struct{}{}
		}
		if got := c.add(s.answered, present); got != s.want {
			t.Fatalf("%s: got %v, want %v", s.reason, got, s.want)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add(metricsOf(1.5, 2e9, 1700000000000))
	f.Add("node_cpu_usage_seconds_total{a=\"b\"} 1\n")
	f.Add("node_memory_working_set_bytes NaN\n")
	f.Add("node_cpu_usage_seconds_total 1 2 3\n# TYPE x y\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseMetrics(strings.NewReader(body), nil)
		if err != nil {
			if !errors.Is(err, errMalformedMetrics) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		for _, s := range []*sample{got.cpu, got.memory, got.swap} {
			if s != nil && (!(s.value >= 0) || s.millis < 0) {
				t.Fatalf("accepted %+v", *s)
			}
		}
	})
}

func FuzzParseStats(f *testing.F) {
	f.Add(`{"node":{"nodeName":"a","cpu":{"time":null,"usageNanoCores":1}}}`)
	f.Add(`{"node":{"memory":{"workingSetBytes":18446744073709551615}}}`)
	f.Add(`{"node":{},"pods":[{"podRef":{"name":"p","namespace":"h-shop","uid":"u"},"containers":[{"name":"c"}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseStats(strings.NewReader(body), prefixed{})
		if err != nil {
			if !errors.Is(err, errMalformedMetrics) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		sumStats([]stats.NodeStats{got.node, got.node})
		pods, _ := mergePodStats(append(got.pods, got.pods...), maxPodStatsAnswered)
		if len(pods) > len(got.pods) {
			t.Fatalf("%d pods of %d", len(pods), len(got.pods))
		}
		if _, err := json.Marshal(pods); err != nil {
			t.Fatalf("accepted pods cannot be written: %v", err)
		}
	})
}
