// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/internal/quota"
)

// What is written is of 50 KiB. A cluster has 8 KiB a second after 32 KiB.
var (
	large = fmt.Sprintf(`{"a":%q}`, strings.Repeat("x", 20<<10))
	each  = quota.Rate{PerSecond: 3200, Burst: 12_800}
	// aMinute is how many such statuses a cluster may have written in one.
	aMinute = int64(12_800+60*3200)/(20<<10) + 1
)

// bounded gives each cluster its budget, and all together what they want.
func (r *rig) bounded() {
	r.budget = quota.NewWrites(each, quota.Rate{PerSecond: 1 << 40, Burst: 1 << 40})
	r.restart()
}

// flap has store-1 answer something else each second, and returns how many statuses that
// made.
func (r *rig) flap(p parent, seconds int, answer func(i int)) (statuses int64) {
	r.t.Helper()
	for i := range seconds {
		answer(i)
		writes, _ := r.look(p.kind)
		statuses += writes
		<-time.After(time.Second)
	}
	return statuses
}

func TestFlappingClusterIsChargedForStatus(t *testing.T) {
	// A small answer has the large one of another cluster written again.
	viewed(t, func(t *testing.T, r *rig, p parent) {
		r.bounded()
		r.answer(p, "store-2", "Completed", "", large)
		r.settle(kindResourceView)
		statuses := r.flap(p, 60, func(i int) { r.answer(p, "store-1", "Completed", "", fmt.Sprintf(`{"a":%d}`, i)) })
		if statuses > aMinute || statuses < aMinute-2 {
			t.Errorf("the view was written %d times in a minute, want about %d", statuses, aMinute)
		}
	})
	// The reason of one is written beside the template.
	fanned(t, func(s *v1alpha1.WorkSet) { s.Spec.Template.Spec.KubeWork.ObjectTemplate.Raw = []byte(large) }, func(t *testing.T, r *rig, p parent) {
		r.bounded()
		r.settle(kindWorkSet)
		statuses := r.flap(p, 60, func(i int) { r.answer(p, "store-1", "Failed", fmt.Sprint("no ", i), "") })
		if statuses > aMinute || statuses < aMinute-2 {
			t.Errorf("the set was written %d times in a minute, want about %d", statuses, aMinute)
		}
	})
}

func TestFlappingClusterDoesNotDelayOthers(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(r *rig, p parent)
		free   bool
	}{
		"another answers": {
			reason: "it has its own budget", do: func(r *rig, p parent) { r.answer(p, "store-3", "Completed", "", `{"b":1}`) },
		},
		"one joins": {
			reason: "that is not the doing of clusters", free: true,
			do: func(r *rig, _ parent) {
				if err := r.api.Create(r.t.Context(), cluster("store-4")); err != nil {
					r.t.Fatal(err)
				}
			},
		},
		"one leaves": {
			reason: "that is not the doing of clusters", free: true, do: func(r *rig, _ parent) { r.delete(cluster("store-3")) },
		},
		"the spec changes": {
			reason: "that is not the doing of clusters", free: true,
			do: func(r *rig, _ parent) {
				v := newView()
				r.edit(v, func() { v.Spec.SummaryOnly, v.Generation = true, 2 })
			},
		},
		"the spec changes what it means for nobody": {
			reason: "who wrote it waits for its generation", free: true,
			do: func(r *rig, _ parent) {
				v := newView()
				r.edit(v, func() { v.Generation = 2 })
			},
		},
		"a work is not allowed any more": {
			reason: "that is not the doing of clusters", free: true,
			do: func(r *rig, p parent) {
				r.denied.set("alice/store-3", true)
				r.delete(r.work(p, "store-3"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			viewed(t, func(t *testing.T, r *rig, p parent) {
				r.bounded()
				r.answer(p, "store-2", "Completed", "", large)
				r.settle(kindResourceView)
				r.flap(p, 10, func(i int) { r.answer(p, "store-1", "Completed", "", fmt.Sprintf(`{"a":%d}`, i)) })
				r.settle(kindResourceView)
				<-time.After(statusInterval)
				r.answer(p, "store-1", "Completed", "", `{"a":"last"}`)
				left := r.budget.Wait("store-1")
				if _, result := r.look(kindResourceView); result.RequeueAfter != left || left == 0 {
					t.Fatalf("it is written in %s, want %s, when there is budget", result.RequeueAfter, left)
				}
				tc.do(r, p)
				if _, result := r.look(kindResourceView); !result.IsZero() || r.shown()["store-1"] != `{"a":"last"}` {
					t.Errorf("it is written in %s, and shows %s; want all that changed at once: %s", result.RequeueAfter, r.shown()["store-1"], tc.reason)
				}
				if now := r.budget.Wait("store-1"); now != left {
					t.Errorf("the next answer of the one that flaps waits for %s instead of %s", now, left)
				}
				if paid := r.budget.Wait("store-3") > 0; paid == tc.free {
					t.Errorf("the other paid: %t", paid)
				}
			})
		})
	}
}

func TestClustersShareCostOfStatus(t *testing.T) {
	viewed(t, func(t *testing.T, r *rig, p parent) {
		r.bounded()
		r.answer(p, "store-2", "Completed", "", large)
		r.settle(kindResourceView)
		<-time.After(time.Minute)
		for i := range 2 {
			r.answer(p, "store-1", "Completed", "", fmt.Sprintf(`{"a":%d}`, i))
			r.answer(p, "store-3", "Completed", "", fmt.Sprintf(`{"a":%d}`, i))
			if writes, result := r.look(kindResourceView); writes != 1 {
				t.Fatalf("status %d is written in %s, and would not be if each had paid all of it", i, result.RequeueAfter)
			}
			if one, other := r.budget.Wait("store-1"), r.budget.Wait("store-3"); one != other {
				t.Fatalf("one waits for %s, the other for %s", one, other)
			}
			<-time.After(statusInterval)
		}
	})
}
