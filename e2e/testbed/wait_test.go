// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatTakesLongIsAskedLessOften(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		takes  time.Duration
		pause  time.Duration
	}{
		"a look that takes no time":    {"what is there is seen at once", 0, between},
		"a process":                    {"it has half of the time", 300 * time.Millisecond, 300 * time.Millisecond},
		"a process that takes a while": {"what is there is seen soon", 10 * time.Second, mostBetween},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended time.Time
				looks := 0
				err := until(t.Context(), time.Minute, func(context.Context) error {
					if looks++; looks > 1 {
						if paused := time.Since(ended); paused != tc.pause {
							t.Errorf("paused for %s, want %s: %s", paused, tc.pause, tc.reason)
						}
					}
					<-time.After(tc.takes)
					ended = time.Now()
					if looks == 3 {
						return nil
					}
					return errors.New("not yet")
				})
				if err != nil {
					t.Error(err)
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
