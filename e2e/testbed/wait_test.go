// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWhatTakesLongIsAskedLessOften(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		reason string
		takes  time.Duration
		pauses []time.Duration
	}{
		"looks that take no time":     {"what is soon there is seen at once, and what is not costs little", 0, []time.Duration{20 * ms, 30 * ms, 45 * ms, 67500 * time.Microsecond, 100 * ms, 100 * ms}},
		"processes":                   {"they have a quarter of the time", 300 * ms, []time.Duration{900 * ms, 900 * ms}},
		"processes that take a while": {"what is there is seen soon", 10 * time.Second, []time.Duration{mostBetween, mostBetween}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var pauses []time.Duration
				var ended time.Time
				err := until(t.Context(), time.Minute, func(context.Context) error {
					if !ended.IsZero() {
						pauses = append(pauses, time.Since(ended))
					}
					<-time.After(tc.takes)
					ended = time.Now()
					if len(pauses) == len(tc.pauses) {
						return nil
					}
					return errors.New("not yet")
				})
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(tc.pauses, pauses); diff != "" {
					t.Errorf("%s\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestTheLastWordIsOfAWholeLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := errors.New("what was seen")
		first := true
		err := until(t.Context(), time.Second, func(ctx context.Context) error {
			if first {
				first = false
				return whole
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, whole) {
			t.Errorf("error %v, want %v", err, whole)
		}
	})
}
