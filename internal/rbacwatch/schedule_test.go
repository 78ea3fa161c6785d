// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScheduleReviewsUntilCachesSettle(t *testing.T) {
	cases := map[string]struct {
		reason  string
		changes []time.Duration
		want    []time.Duration
	}{
		"nothing changes": {
			reason: "at rest nothing is asked",
		},
		"one change": {
			reason:  "the API server may answer from before it",
			changes: []time.Duration{time.Minute},
			want:    []time.Duration{time.Minute, time.Minute + time.Second, time.Minute + 10*time.Second},
		},
		"another while caches settle": {
			reason:  "the later one takes as long as the first",
			changes: []time.Duration{time.Minute, time.Minute + 5*time.Second},
			want: []time.Duration{
				time.Minute, time.Minute + time.Second,
				time.Minute + 5*time.Second, time.Minute + 6*time.Second, time.Minute + 15*time.Second,
			},
		},
		"two within a second": {
			reason:  "what comes in a burst shares its reviews, and the last of it is reviewed as often as one alone",
			changes: []time.Duration{time.Minute, time.Minute + 100*time.Millisecond, time.Minute + 200*time.Millisecond},
			want: []time.Duration{
				time.Minute,
				time.Minute + time.Second, time.Minute + 2*time.Second, time.Minute + 11*time.Second,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got []time.Duration
				s := NewSchedule(func(context.Context) { got = append(got, time.Since(began)) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				for _, at := range tc.changes {
					time.AfterFunc(at, s.Trigger)
				}
				s.Run(ctx)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: reviews (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestScheduleRunsOneReviewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		running, reviews := 0, 0
		s := NewSchedule(func(context.Context) {
			if running++; running > 1 {
				t.Error("two reviews at once")
			}
			time.Sleep(5 * time.Second)
			running--
			reviews++
		})
		for _, at := range []time.Duration{0, time.Second, 2 * time.Second} {
			time.AfterFunc(at, s.Trigger)
		}
		s.Run(ctx)
		if reviews != 4 {
			t.Errorf("%d reviews, want that during which more changed, and three after the last change", reviews)
		}
	})
}

func TestScheduleStopsBetweenReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reviews := 0
		s := NewSchedule(func(context.Context) { reviews++ })
		s.Trigger()
		time.AfterFunc(500*time.Millisecond, cancel)
		s.Run(ctx)
		if reviews != 1 {
			t.Errorf("%d reviews, want the one before the end", reviews)
		}
	})
}
