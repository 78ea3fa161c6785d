// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

func TestFrequentStatusChangesAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := multicluster()
		hot, calm := k.newWork(managed, "hot", k.addFinalizer), k.newWork("c2", "calm", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), clusterNamed("c2"), hot, calm)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for r.handleNext(t.Context()) {
			}
		}()
		send := func(cluster, name string, status metav1.ConditionStatus) {
			key := "multicluster/" + cluster + "/" + name
			r.receive(cluster, resource.Resource{Key: key, UID: "uid-" + name, Body: statusBody(t, applied(1, status))})
			synctest.Wait()
		}
		send(managed, "hot", metav1.ConditionTrue)
		if r.writes != 1 {
			t.Errorf("the first status waits: %d writes", r.writes)
		}
		for range 500 { // 10 s of changes, the last of which is False
			send(managed, "hot", metav1.ConditionTrue)
			<-time.After(10 * time.Millisecond)
			send(managed, "hot", metav1.ConditionFalse)
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait()
		if most := ratelimit.Burst + 10*ratelimit.PerSecond + 1; r.writes > most || r.writes < most/2 {
			t.Errorf("%d writes in 10 s, want at most %d", r.writes, most)
		}
		send("c2", "calm", metav1.ConditionTrue)
		if got, _ := r.get(t, k, calm); !meta.IsStatusConditionTrue(*got.Conditions(), "Applied") {
			t.Error("a work of another cluster waits")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if got, _ := r.get(t, k, hot); !meta.IsStatusConditionFalse(*got.Conditions(), "Applied") {
			t.Errorf("the last status is not there: %+v", got.Status())
		}
		r.queue.ShutDown()
		<-ended
	})
}

func TestStatusLatencyIsMeasuredFromSpokeEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := multicluster()
		w := k.newWork(managed, "w", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), w)
		registry := prometheus.NewRegistry()
		m, err := statuswriter.NewMetrics(registry, metricsHelp)
		if err != nil {
			t.Fatal(err)
		}
		r.queue.Metrics = m
		receive := func(status metav1.ConditionStatus, since time.Time) {
			r.receive(managed, resource.Resource{
				Key: "multicluster/c1/w", UID: "uid-w", Body: statusBody(t, applied(1, status)), Since: since,
			})
		}
		measured := func() (n uint64, sum float64) {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := families[0].GetMetric()[0].GetHistogram()
			return got.GetSampleCount(), got.GetSampleSum()
		}
		begin := time.Now()
		receive(metav1.ConditionTrue, begin)
		<-time.After(time.Second)
		// It takes the place of the one that waits, and tells of both events.
		receive(metav1.ConditionFalse, time.Now())
		<-time.After(time.Second)
		r.conflict = 3
		r.handleNext(t.Context()) // fails
		<-time.After(time.Second)
		receive(metav1.ConditionTrue, time.Time{})
		r.handleNext(t.Context())
		if n, sum := measured(); n != 1 || sum < 3 || sum > 3.1 {
			t.Errorf("%d measured, %f s, want one of 3 s", n, sum)
		}
		receive(metav1.ConditionTrue, begin) // known, and not written
		r.handleNext(t.Context())
		receive(metav1.ConditionFalse, time.Time{}) // of no event
		r.handleNext(t.Context())
		if n, _ := measured(); n != 1 || r.writes < 4 {
			t.Errorf("%d measured of %d writes", n, r.writes)
		}
	})
}

func TestLargeStatusesAreRateLimitedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst, large = 40 << 10, 400 << 10, 12 << 10
		k := multicluster()
		hot, next, calm := k.newWork(managed, "hot", k.addFinalizer), k.newWork(managed, "next", k.addFinalizer), k.newWork("c2", "calm", k.addFinalizer)
		r := newRig(t, clusterNamed(managed), clusterNamed("c2"), hot, next, calm)
		r.writeQuota = quota.NewWrites(quota.Rate{PerSecond: rate, Burst: burst}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for r.handleNext(t.Context()) {
			}
		}()
		status := func(i int) wire.WorkStatus {
			s := applied(1, metav1.ConditionFalse)
			s.Conditions[0].Message = strings.Repeat("m", large) + strconv.Itoa(i)
			return s
		}
		send := func(cluster, name string, s wire.WorkStatus) {
			r.receive(cluster, resource.Resource{Key: "multicluster/" + cluster + "/" + name, UID: "uid-" + name, Body: statusBody(t, s)})
			synctest.Wait()
		}
		for i := range 200 { // 20 s
			send(managed, "hot", status(i))
			<-time.After(100 * time.Millisecond)
		}
		if most := (burst+20*rate)/large + 1; r.writes > most || r.writes < most*8/10 {
			t.Errorf("%d writes of %d bytes in 20 s, want at most %d", r.writes, large, most)
		}
		written := func(name string, w client.Object) *metav1.Condition {
			got, _ := r.get(t, k, w)
			c := meta.FindStatusCondition(*got.Conditions(), "Applied")
			if c == nil {
				t.Fatalf("nothing is written to %s", name)
			}
			return c
		}
		send("c2", "calm", status(0))
		written("the work of another cluster", calm)
		r.writes = 0
		r.writeQuota.Spend(managed, 10*burst)
		r.reportRefusal(k, next, errors.New("boom"))
		synctest.Wait()
		if c := written("a work that was not sent", next); c.Reason != k.FailedReason {
			t.Errorf("what the hub has to say waits: %+v", c)
		}
		<-time.After(3 * time.Minute)
		synctest.Wait()
		if c := written("the work", hot); !strings.HasSuffix(c.Message, "m199") {
			t.Error("the last status is not there")
		}
		r.queue.ShutDown()
		<-ended
	})
}
