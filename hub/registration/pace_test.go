// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/api/pace"
)

func TestAClusterThatChangesWithoutEndIsLookedAtAtASteadyRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, fresh())
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		if err := h.reconciler.start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		looks := map[string]int{}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				request, quit := queue.Get()
				if quit {
					return
				}
				looks[request.Name]++
				queue.Done(request)
			}
		}()
		h.UpdateSummary(store1, Summary{})
		synctest.Wait()
		if looks[store1] != 1 {
			t.Errorf("the first summary waits: %d looks", looks[store1])
		}
		for range 1000 {
			h.UpdateSummary(store1, Summary{})
			h.SessionChanged(store1, nil)
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		// A look that waited and one at the moment there is room again may both happen.
		if most := pace.Burst + 2*10*pace.PerSecond + 1; looks[store1] > most {
			t.Errorf("%d looks in 10 s, want at most %d", looks[store1], most)
		}
		h.UpdateSummary("other", Summary{})
		synctest.Wait()
		if looks["other"] != 1 {
			t.Error("another cluster waits")
		}
		before := looks[store1]
		h.SessionChanged(store1, nil)
		<-time.After(time.Second)
		synctest.Wait()
		if looks[store1] == before {
			t.Error("what came last is not looked at")
		}
		queue.ShutDown()
		<-ended
	})
}
