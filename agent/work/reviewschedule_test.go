// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/executor"
	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
	"github.com/spokelet/spokelet/internal/testing/livetest"
)

// queued empties a queue.
func queued(q workqueue.TypedInterface[string]) []string {
	var got []string
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
		got = append(got, key)
	}
	slices.Sort(got)
	return got
}

func TestRightsChangeRequeuesWorksOfNamespace(t *testing.T) {
	cases := map[string]struct {
		reason, namespace string
		want              []string
	}{
		"in one namespace":       {"what it holds is of no matter elsewhere", "shop", []string{"in shop", "in two"}},
		"in another":             {"as above", "bank", []string{"in bank", "in two"}},
		"where nobody writes":    {"nobody waits for it", "empty", nil},
		"in the cluster's roles": {"they hold everywhere", "", []string{"in bank", "in no namespace", "in shop", "in two"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &Engine{queue: workqueue.NewTypedDelayingQueue[string](), works: map[string]*work{"without executor": {}}}
				defer e.queue.ShutDown()
				for key, in := range map[string][]string{
					"in shop": {"shop"}, "in bank": {"bank"}, "in two": {"shop", "bank"}, "in no namespace": {""},
				} {
					e.works[key] = &work{}
					e.works[key].reviews.setNamespaces(in)
				}
				e.requeueForReview(tc.namespace)
				time.Sleep(2 * changeDelay)
				if diff := cmp.Diff(tc.want, queued(e.queue)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// reviewed runs a work whenever it is queued, for a time in which rights change at
// the given times, and returns when its executor was asked about everything.
func reviewed(t *testing.T, during time.Duration, changes ...time.Duration) []time.Duration {
	t.Helper()
	var at []time.Duration
	synctest.Test(t, func(*testing.T) {
		w := &work{}
		w.reviews.setNamespaces([]string{"shop"})
		e := &Engine{queue: workqueue.NewTypedDelayingQueue[string](), works: map[string]*work{"w": w}}
		defer e.queue.ShutDown()
		began := time.Now()
		for _, after := range changes {
			time.AfterFunc(after, func() { e.requeueForReview("shop") })
		}
		for time.Since(began) < during {
			time.Sleep(5 * time.Millisecond)
			for range queued(e.queue) {
				if w.reviews.beginIfDue(time.Now()) {
					at = append(at, time.Since(began).Truncate(20*time.Millisecond))
				}
				if wait := w.reviews.delay(time.Now()); wait > 0 {
					e.queue.AddAfter("w", wait)
				}
			}
		}
	})
	return at
}

// Second looks do not count: they would put off the review of a change that comes
// later.
func TestFollowUpReviewsDoNotDelayOthers(t *testing.T) {
	var changes []time.Duration
	for n := range freeReviews {
		changes = append(changes, time.Duration(n)*5*time.Second)
	}
	at := reviewed(t, time.Minute, changes...)
	for _, change := range changes {
		if !slices.ContainsFunc(at, func(d time.Duration) bool { return d >= change && d <= change+minReviewInterval }) {
			t.Errorf("the change after %s is not reviewed within %s: %v", change, minReviewInterval, at)
		}
	}
}

// rightsOf is a checker that has just begun to watch the rights of an API server, which
// answers nothing else.
func rightsOf(t *testing.T) *executor.Checker {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !req.URL.Query().Has("watch") {
			_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
			return
		}
		w.WriteHeader(http.StatusOK)
		if req.URL.Query().Has("sendInitialEvents") {
			_, _ = w.Write([]byte(`{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` +
				`"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`))
		}
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	t.Cleanup(server.Close)
	c, err := executor.New(executor.Config{REST: &rest.Config{Host: server.URL}, Caches: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	livetest.Eventually(t, "the rights are watched", c.IsWatching)
	return c
}

// What it was told first may be from before a change that nobody told it of.
func TestNewNamespaceReviewsEarlierChange(t *testing.T) {
	e := &Engine{executors: rightsOf(t)}
	account := &workv1.ManifestWorkSubjectServiceAccount{Namespace: "n", Name: "sa"}
	in := func(namespace string) []*plan.Step {
		return []*plan.Step{{Target: manifest.Target{ObjectID: manifest.ObjectID{Namespace: namespace}}, Options: plan.Options{Executor: account}}}
	}
	d := &plan.Spec{ManifestWork: workv1.ManifestWorkSpec{Executor: &workv1.ManifestWorkExecutor{}}}
	w := &work{}
	e.beginReview(w, d, in("shop"))
	if wait := w.reviews.delay(time.Now()); wait <= 0 || wait > lastReviewDelay {
		t.Errorf("a new work looks again after %s", wait)
	}
	w.reviews.lastChange = time.Time{} // its last look is over
	e.beginReview(w, d, in("shop"))
	if wait := w.reviews.delay(time.Now()); wait != 0 {
		t.Errorf("nothing is new, and it looks again after %s", wait)
	}
	e.beginReview(w, d, in("bank"))
	if wait := w.reviews.delay(time.Now()); wait <= 0 || wait > lastReviewDelay {
		t.Errorf("in a new namespace it looks again after %s", wait)
	}
}

// The API server may answer from before a change, and is asked again: once within two
// seconds, and once when that is surely over.
func TestRightsChangeIsReviewedAtOnceAndAgain(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	cases := map[string]struct {
		reason  string
		changes []time.Duration
		want    []time.Duration
	}{
		"one":                     {"at once, and after the API server's caches", []time.Duration{s}, []time.Duration{1100 * ms, 2100 * ms, 11 * s}},
		"a role, its binding":     {"they are one grant", []time.Duration{s, s + 40*ms}, []time.Duration{1100 * ms, 2100 * ms, 11040 * ms}},
		"one right after a look":  {"it waits for a second, not for more", []time.Duration{s, s + 150*ms}, []time.Duration{1100 * ms, 2100 * ms, 3100 * ms, 11140 * ms}},
		"two, at different times": {"each is reviewed within two seconds", []time.Duration{s, 5 * s}, []time.Duration{1100 * ms, 2100 * ms, 5100 * ms, 6100 * ms, 15 * s}},
		"none":                    {"nobody asks", nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, reviewed(t, time.Minute, tc.changes...)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Where nobody watches the rights, an object that strays has everything asked again.
func TestDriftSchedulesReview(t *testing.T) {
	const s = time.Second
	cases := map[string]struct {
		reason string
		strays []time.Duration
		want   []time.Duration
	}{
		"long after the last review":  {"at once", []time.Duration{20 * s}, []time.Duration{20 * s}},
		"right after the last review": {"nothing that strays is left out", []time.Duration{3 * s}, []time.Duration{10 * s}},
		"several times after it":      {"one review is about all of them", []time.Duration{3 * s, 4 * s, 20 * s}, []time.Duration{10 * s, 20 * s}},
		"again and again":             {"few questions", []time.Duration{10 * s, 11 * s, 12 * s, 19 * s, 21 * s, 25 * s}, []time.Duration{10 * s, 20 * s, 30 * s}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r reviewSchedule
				began := time.Now()
				r.begin(began)
				var at []time.Duration
				for next := tc.strays; len(next) > 0 || r.delay(time.Now()) > 0; time.Sleep(s) {
					if len(next) > 0 && time.Since(began) >= next[0] {
						r.recordDrift(time.Now())
						next = next[1:]
					}
					if r.beginIfDue(time.Now()) {
						at = append(at, time.Since(began))
					}
				}
				if diff := cmp.Diff(tc.want, at); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// A repair that is refused, or fails, is tried again by a timer, which is no event.
func TestUnrepairedDriftCountsOnce(t *testing.T) {
	p := &allowedCache{}
	one, two := manifest.ObjectID{Name: "one"}, manifest.ObjectID{Name: "two"}
	looks := []struct {
		reason    string
		id        manifest.ObjectID
		now, want bool
	}{
		{"it is as it was applied", one, false, false},
		{"somebody changed it", one, true, true},
		{"its repair is tried again", one, true, false},
		{"another one was changed, too", two, true, true},
		{"it was repaired", one, false, false},
		{"somebody changed it again", one, true, true},
	}
	for _, look := range looks {
		if got := p.recordDrift(look.id, look.now); got != look.want {
			t.Errorf("%s: strays = %t, want %t", look.reason, got, look.want)
		}
	}
	if (*allowedCache)(nil).recordDrift(one, true) {
		t.Error("a work without an executor has somebody asked")
	}
}

func TestConstantRightsChangesAskFewQuestions(t *testing.T) {
	var changes []time.Duration
	for at := time.Duration(0); at < time.Minute; at += 60 * time.Millisecond {
		changes = append(changes, at)
	}
	at := reviewed(t, 2*time.Minute, changes...)
	if n := len(at); n < freeReviews+6 || n > freeReviews+8 {
		t.Errorf("reviewed %d times in a minute: %v", n, at)
	}
	for i := 1; i < len(at); i++ {
		if pause := at[i] - at[i-1]; pause > maxReviewInterval+minReviewInterval {
			t.Errorf("after %s nobody looked for %s", at[i-1], pause)
		}
	}
	if last := at[len(at)-1]; last < time.Minute+lastReviewDelay-minReviewInterval {
		t.Errorf("the last look was at %s, and may have been answered from before the last change", last)
	}
}
