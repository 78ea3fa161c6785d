// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcetest_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/spokelet/spokelet/internal/testing/resourcetest"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestBothEndsFollowEachOtherUntilTheyAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atAgent, atHub := map[string]int{}, map[string]int{}
		hub := resource.NewHub()
		hub.Publish("down", nil)
		hub.Mirror("up", resource.HubReceiver{Put: func(cluster string, r resource.Resource) { atHub[cluster+"/"+r.Key] = len(r.Body) }})
		up := resource.NewSource("up")
		agent, err := resource.NewAgent([]*resource.Source{up}, []*resource.Mirror{
			resource.NewMirror("down", resource.Receiver{Put: func(r resource.Resource) { atAgent[r.Key] = len(r.Body) }}),
		})
		if err != nil {
			t.Fatal(err)
		}
		put := func(s *resource.Source, key string) {
			if err := s.Put(resource.Resource{Key: key, Body: bytes.Repeat([]byte("x"), 1<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		down := hub.Source("spoke1", "down")
		down.Complete()
		up.Complete()
		cut := resourcetest.Connect(t, hub, "spoke1", agent)
		put(down, "a")
		put(up, "b")
		synctest.Wait()
		if atAgent["a"] != 1<<20 || atHub["spoke1/b"] != 1<<20 {
			t.Errorf("the agent has %v, the hub %v; want what the other put", atAgent, atHub)
		}
		cut()
		put(down, "c")
		synctest.Wait()
		if len(atAgent) != 1 {
			t.Errorf("the agent has %v after the cut", atAgent)
		}
		resourcetest.Connect(t, hub, "spoke1", agent)
		synctest.Wait()
		if len(atAgent) != 2 {
			t.Errorf("the agent has %v, want what was put meanwhile, too", atAgent)
		}
	})
}
