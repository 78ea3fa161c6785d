// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/tunnel/identity"
)

func TestReconcilerPacesEventsOfCluster(t *testing.T) {
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
		if most := ratelimit.Burst + 2*10*ratelimit.PerSecond + 1; looks[store1] > most {
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

func TestSummaryWaitsForWriteBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, fresh())
		h.reconciler.config.Writes = quota.NewWrites(quota.Rate{PerSecond: 1, Burst: 10}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		says := func(cpu string) {
			h.UpdateSummary(store1, Summary{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}})
		}
		cpu := func() string {
			quantity := h.get(store1).Status.Capacity[clusterv1.ResourceCPU]
			return quantity.String()
		}
		says("1")
		h.reconcileOnce(store1)
		if cpu() != "1" {
			t.Errorf("the first summary waits: %s", cpu())
		}
		h.SessionChanged(store1, &identity.Cluster{Name: store1, ID: h.get(store1).Annotations[managedcluster.AnnotationClusterID]})
		says("2")
		result := h.reconcileOnce(store1)
		if cpu() != "1" || result.RequeueAfter <= 0 {
			t.Errorf("%s CPUs are written in debt; another look in %s", cpu(), result.RequeueAfter)
		}
		if !meta.IsStatusConditionTrue(h.get(store1).Status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
			t.Error("what the hub itself has to say waits")
		}
		<-time.After(24 * time.Hour)
		h.reconcileOnce(store1)
		if cpu() != "2" {
			t.Errorf("the debt is paid, and the record says %s CPUs", cpu())
		}
	})
}
