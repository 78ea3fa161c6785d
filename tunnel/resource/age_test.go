// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// journey is a source and a mirror whose hosts' clocks differ by a year.
type journey struct {
	t        *testing.T
	source   *Source
	feed     *sourceStream
	intake   *mirrorStream
	received []Resource
	now      time.Time
}

func newJourney(t *testing.T) *journey {
	t.Helper()
	j := &journey{t: t, source: NewSource("k"), now: time.Unix(1_000_000, 0)}
	m := NewMirror("k", Receiver{Put: func(r Resource) { j.received = append(j.received, r) }})
	j.feed, j.intake = j.source.open(nil, func() {}), m.open()
	if err := j.feed.handleInventory(j.intake.inventory()[0].GetInventory()); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *journey) put(body string, since time.Time) {
	j.t.Helper()
	if err := j.source.Put(Resource{Key: "a", Body: []byte(body), Since: since}); err != nil {
		j.t.Fatal(err)
	}
}

// travel sends what there is to a peer; ages are what it takes them for.
func (j *journey) travel() (ages []time.Duration) {
	j.t.Helper()
	there := j.now.AddDate(1, 0, 0)
	for m := j.feed.next(j.now); m != nil; m = j.feed.next(j.now) {
		if err := j.intake.put(m.GetPut(), nil, there); err != nil {
			j.t.Fatal(err)
		}
		age := time.Duration(-1)
		if since := j.received[len(j.received)-1].Since; !since.IsZero() {
			age = there.Sub(since)
		}
		ages = append(ages, age)
	}
	return ages
}

func TestPutCarriesAge(t *testing.T) {
	const unknown = time.Duration(-1)
	tests := map[string]struct {
		reason string
		do     func(*journey) []time.Duration
		want   []time.Duration
	}{
		"an event": {
			reason: "it waited that long at the source", want: []time.Duration{2 * time.Second},
			do: func(j *journey) []time.Duration { j.put("1", j.now.Add(-2*time.Second)); return j.travel() },
		},
		"no event": {
			reason: "a peer of an older version says none either", want: []time.Duration{unknown},
			do: func(j *journey) []time.Duration { j.put("1", time.Time{}); return j.travel() },
		},
		"two events before the first is sent": {
			reason: "the peer has waited since the first", want: []time.Duration{9 * time.Second},
			do: func(j *journey) []time.Duration {
				j.put("1", j.now.Add(-9*time.Second))
				j.put("2", j.now.Add(-time.Second))
				return j.travel()
			},
		},
		"two events one by one": {
			reason: "the first has been told", want: []time.Duration{9 * time.Second, time.Second},
			do: func(j *journey) []time.Duration {
				j.put("1", j.now.Add(-9*time.Second))
				first := j.travel()
				j.put("2", j.now.Add(-time.Second))
				return append(first, j.travel()...)
			},
		},
		"nothing new": {
			reason: "when it was said again is no part of the version", want: []time.Duration{9 * time.Second},
			do: func(j *journey) []time.Duration {
				j.put("1", j.now.Add(-9*time.Second))
				first := j.travel()
				j.put("1", j.now)
				return append(first, j.travel()...)
			},
		},
		"an event of this very moment": {
			reason: "it is known, and has no age to speak of", want: []time.Duration{time.Microsecond},
			do: func(j *journey) []time.Duration { j.put("1", j.now); return j.travel() },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.do(newJourney(t))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestImpossibleAgeIsIgnored(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tests := map[string]struct {
		reason string
		age    uint64
		want   time.Time
	}{
		"none":       {reason: "it is not known"},
		"a day":      {reason: "a stream may have been away", age: uint64(maxAge.Microseconds()), want: now.Add(-maxAge)},
		"more":       {reason: "no figure is made of it", age: uint64(maxAge.Microseconds()) + 1},
		"as it gets": {reason: "a peer says what it wants", age: math.MaxUint64},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sinceOf(tc.age, now); !got.Equal(tc.want) {
				t.Errorf("%s: since %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
