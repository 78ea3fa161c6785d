// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

// The harness must be able to fail: each thing that an attack may do is a problem.
func TestWhatAnAttackMayNotDoIsAProblem(t *testing.T) {
	well := Seen{Reads: figure.Durations{time.Millisecond}, Peak: 100}
	with := func(change func(*Seen)) Seen {
		s := well
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		reason string
		seen   Seen
		want   int
	}{
		"all is well":        {"no problem where there is none", well, 0},
		"a failure":          {"a request of an honest user was not answered", with(func(s *Seen) { s.Failures = []string{"503"} }), 1},
		"many failures":      {"a log has room for a few", with(func(s *Seen) { s.Failures = make([]string, 100) }), 6},
		"a cut":              {"an honest session ended", with(func(s *Seen) { s.Cut = []string{"honest-1"} }), 1},
		"a restart":          {"the hub was killed", with(func(s *Seen) { s.Restarts = 1 }), 1},
		"too much memory":    {"the limit is the container's", with(func(s *Seen) { s.Peak = 1025 }), 1},
		"nothing was read":   {"a hub that answers nobody must not pass", with(func(s *Seen) { s.Reads = nil }), 1},
		"nothing was seen":   {"a hub whose memory nobody could read must not pass", with(func(s *Seen) { s.Peak = 0 }), 1},
		"as much as allowed": {"the limit itself is within it", with(func(s *Seen) { s.Peak = 1024 }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.seen.Problems(1024); len(got) != tc.want {
				t.Errorf("%s: got %q, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestWritesAreHeldToBurstAndRate(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		reason  string
		written Written
		want    int
	}{
		"the burst":          {"may be written at once", Written{Bytes: 64 << 20, Took: second}, 0},
		"more than that":     {"may not", Written{Bytes: 100 << 20, Took: second}, 1},
		"burst and rate":     {"a cluster may write for ever, slowly", Written{Bytes: 64<<20 + 1000*256<<10, Took: 1000 * second}, 0},
		"six MB a second":    {"is what the audit of November 2026 measured", Written{Bytes: 145 << 20, Took: 25 * second}, 1},
		"nothing is written": {"is no problem of the hub's", Written{Took: second}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.written.Problems(); len(got) != tc.want {
				t.Errorf("%s: got %q, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestTheRateIsThatAfterTheBurst(t *testing.T) {
	events := watch.NewFakeWithChanSize(200, false)
	events.Add(&metav1.PartialObjectMetadata{})
	const versions = 100
	for range versions {
		events.Modify(&metav1.PartialObjectMetadata{})
	}
	events.Stop()
	w := measure(events)
	if w.Bytes != versions*(workBytes+feedbackBytes) {
		t.Errorf("each version is the whole work: got %d bytes", w.Bytes)
	}
	if w.After == 0 || w.After >= w.Bytes-writeBurst || w.Rate() == 0 {
		t.Errorf("after the burst: got %d of %d bytes, %.0f KiB/s", w.After, w.Bytes, w.Rate())
	}
	if (Written{Bytes: 1000}).Rate() != 0 {
		t.Error("within the burst there is no rate")
	}
}
