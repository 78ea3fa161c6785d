// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRoleLimiterBoundsRateOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acted []bool
		p := newRoleLimiter(func(standby bool) { acted = append(acted, standby) })
		defer p.stop()
		p.set(true)
		p.set(false)
		if diff := cmp.Diff([]bool{true, false}, acted); diff != "" {
			t.Errorf("the first changes wait (-want +got):\n%s", diff)
		}
		for i := range 10_001 { // 10 s
			p.set(i%2 == 0)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if most := 2 * (roleBurst + 12*rolesPerSecond); len(acted) > most {
			t.Errorf("%d changes in 12 s, want at most %d", len(acted), most)
		}
		if !acted[len(acted)-1] {
			t.Error("what was said last does not count")
		}
	})
}

func TestRoleLimiterReportsStandbyBetweenExecutorTerms(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		said   []bool
		want   []bool
	}{
		"another has begun":  {reason: "its Sync begins anew", said: []bool{true, false}, want: []bool{true, false}},
		"it is over":         {reason: "one word says it", said: []bool{true, false, true}, want: []bool{true}},
		"nothing has ceased": {reason: "there is nothing to end", said: []bool{false, false}, want: []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var acted []bool
				p := newRoleLimiter(func(standby bool) { acted = append(acted, standby) })
				defer p.stop()
				for range roleBurst {
					p.set(false)
				}
				acted = nil
				for _, standby := range tc.said {
					p.set(standby)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if diff := cmp.Diff(tc.want, acted); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestRoleLimiterAppliesNothingAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		acted := 0
		p := newRoleLimiter(func(bool) { acted++ })
		for range roleBurst + 1 {
			p.set(false)
		}
		p.stop()
		p.set(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if acted != roleBurst {
			t.Errorf("%d changes, want %d", acted, roleBurst)
		}
	})
}
