// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
)

// stands makes the refusal one that has stood for long.
func (d *denied) stands() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = 20
}

func TestARefusalIsAskedAboutSoonAndThenLessAndLess(t *testing.T) {
	d := &denied{}
	want := permissionLag
	for n := range 7 {
		if pause := d.wait(); pause < want/2 || pause > want {
			t.Errorf("after %d refusals: %s, want up to %s", n+1, pause, want)
		}
		d.judge([]string{"shop"})
		want = min(2*want, permissionRetry)
	}
	d.judge(nil)
	if pause := d.wait(); pause > permissionLag {
		t.Errorf("what was allowed is refused: %s, want up to %s", pause, permissionLag)
	}
}

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

func TestAChangeOfRightsConcernsWhatWasRefusedThere(t *testing.T) {
	cases := map[string]struct {
		reason, namespace string
		want              []string
	}{
		"in one namespace":       {"what it holds is of no matter elsewhere", "shop", []string{"in shop", "in two"}},
		"in another":             {"as above", "bank", []string{"in bank", "in two"}},
		"where nobody was":       {"nobody waits for it", "empty", nil},
		"in the cluster's roles": {"they hold everywhere", "", []string{"in bank", "in no namespace", "in shop", "in two"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &Engine{queue: workqueue.NewTypedDelayingQueue[string](), works: map[string]*work{"allowed": {}}}
				defer e.queue.ShutDown()
				for key, in := range map[string][]string{
					"in shop": {"shop"}, "in bank": {"bank"}, "in two": {"shop", "bank"}, "in no namespace": {""},
				} {
					e.works[key] = &work{}
					e.works[key].denied.judge(in)
				}
				e.appeal(tc.namespace)
				time.Sleep(2 * appealPause)
				if diff := cmp.Diff(tc.want, queued(e.queue)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestRightsThatChangeWithoutEndAreFewQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &work{}
		e := &Engine{queue: workqueue.NewTypedDelayingQueue[string](), works: map[string]*work{"w": w}}
		defer e.queue.ShutDown()
		w.denied.judge([]string{"shop"})
		runs := 0
		for range 1000 { // of a minute
			w.denied.stands()
			e.appeal("shop")
			time.Sleep(60 * time.Millisecond)
			for range queued(e.queue) {
				if pause := w.denied.wait(); pause > permissionLag {
					t.Errorf("the API server may lag, and is asked again after %s", pause)
				}
				w.denied.judge([]string{"shop"})
				runs++
			}
		}
		if runs < 6 || runs > 7 {
			t.Errorf("tried %d times in a minute, want 6 or 7", runs)
		}
	})
}
