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

func TestARefusalIsAskedAboutSoonAndThenLessAndLess(t *testing.T) {
	w := &work{}
	var got []time.Duration
	for range 7 {
		got = append(got, w.untilAskedAgain())
		w.denying = true
		w.judged()
	}
	want := permissionLag
	for i, pause := range got {
		if pause < want/2 || pause > want {
			t.Errorf("after %d refusals: %s, want up to %s", i+1, pause, want)
		}
		want = min(2*want, permissionRetry)
	}
	w.denying = false
	w.judged()
	if pause := w.untilAskedAgain(); pause > permissionLag {
		t.Errorf("what was allowed is refused: %s, want up to %s", pause, permissionLag)
	}
}

func TestAChangeOfRightsConcernsWorksThatWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{
			works: map[string]*work{"refused": {}, "new": {}, "too": {}},
			queue: workqueue.NewTypedDelayingQueue[string](),
		}
		defer e.queue.ShutDown()
		e.works["refused"].denied.Store(9)
		e.works["too"].denied.Store(9)
		e.appeal()
		e.appeal() // the role, and its binding
		time.Sleep(2 * appealPause)
		var got []string
		for e.queue.Len() > 0 {
			key, _ := e.queue.Get()
			e.queue.Done(key)
			got = append(got, key)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"refused", "too"}, got); diff != "" {
			t.Errorf("tried again (-want +got):\n%s", diff)
		}
		if wait := e.works["refused"].untilAskedAgain(); wait > permissionLag {
			t.Errorf("after a change a refusal stands for %s, want up to %s", wait, permissionLag)
		}
	})
}
