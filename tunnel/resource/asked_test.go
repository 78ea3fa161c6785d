// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// askers counts, by cluster, the streams whose agents mirror a kind.
type askers chan map[string]int

func (a askers) asked(cluster string) (ceased func()) {
	add := func(n int) {
		now := <-a
		now[cluster] += n
		a <- now
	}
	add(1)
	return func() { add(-1) }
}

func (a askers) of(cluster string) int {
	now := <-a
	defer func() { a <- now }()
	return now[cluster]
}

func TestHubReportsWhoMirrorsKind(t *testing.T) {
	cases := map[string]struct {
		reason string
		kinds  []string
		want   int
		have   map[string]string
	}{
		"an agent that mirrors it":        {reason: "it asks", kinds: []string{"probe", "rare"}, want: 1, have: map[string]string{"a": "1"}},
		"an agent that mirrors it not":    {reason: "nothing of it may reach it", kinds: []string{"probe"}, have: map[string]string{}},
		"an agent that mirrors something": {reason: "nothing of it may reach it", kinds: []string{"probe", "other"}, have: map[string]string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			told := make(askers, 1)
			told <- map[string]int{}
			hub := NewHub()
			hub.PublishAsked("rare", nil, told.asked)
			hub.Publish("probe", nil)
			for _, kind := range []string{"rare", "probe"} {
				if err := hub.Source("c1", kind).Put(Resource{Key: "a", Body: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				hub.Source("c1", kind).Complete()
			}
			rare, probe := newMirrored(), newMirrored()
			receivers := map[string]Receiver{"rare": rare.receiver(), "probe": probe.receiver()}
			var mirrors []*Mirror
			for _, kind := range tc.kinds {
				mirrors = append(mirrors, NewMirror(kind, receivers[kind]))
			}
			agent, err := NewAgent(nil, mirrors)
			if err != nil {
				t.Fatal(err)
			}
			session := sessionTo(t, agent)
			for range 2 {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				probe.do(func() { probe.synced, rare.synced = 0, 0 })
				go func() { ended <- hub.Run(ctx, "c1", session) }()
				probe.wait(func() bool { return probe.synced == 1 })
				if slices.Contains(tc.kinds, "rare") {
					rare.wait(func() bool { return rare.synced == 1 })
				}
				if got := told.of("c1"); got != tc.want {
					t.Errorf("%s: %d streams ask, want %d", tc.reason, got, tc.want)
				}
				cancel()
				<-ended
				if got := told.of("c1"); got != 0 {
					t.Errorf("%d streams ask after the end", got)
				}
			}
			rare.do(func() {
				if diff := cmp.Diff(tc.have, rare.have); diff != "" {
					t.Errorf("%s: the mirror (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestObserverIsCalledBeforeSyncedIsQueued(t *testing.T) {
	count, atWake := 0, -1
	source := NewSource("rare")
	source.onMirrored = func() func() {
		count++
		return func() { count-- }
	}
	source.Complete()
	f := source.open(nil, func() { atWake = count })
	invalid := &rpcv1.Inventory{Kind: "rare", Refs: []*rpcv1.ResourceRef{{}}}
	if err := f.handleInventory(invalid); err == nil || count != 0 {
		t.Errorf("an inventory without a key: error = %v, %d streams are counted; want an error and none", err, count)
	}
	if err := f.handleInventory(&rpcv1.Inventory{Kind: "rare"}); err != nil {
		t.Fatal(err)
	}
	if atWake != 1 {
		t.Errorf("%d streams were counted when the writer was woken, want 1", atWake)
	}
	if err := f.handleInventory(&rpcv1.Inventory{Kind: "rare"}); !errors.Is(err, ErrProtocol) {
		t.Errorf("a second inventory: error = %v, want %v", err, ErrProtocol)
	}
	f.close()
	if count != 0 {
		t.Errorf("%d streams are counted after the end, want 0: a second inventory counts for nothing", count)
	}
}
