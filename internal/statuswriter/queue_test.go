// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestQueue(t *testing.T) *Queue {
	t.Helper()
	q := NewQueue(nil, logr.Discard())
	t.Cleanup(q.ShutDown)
	return q
}

func TestLatestReportKeepsTimeOfFirstEvent(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	tests := map[string]struct {
		reason     string
		waits      Report
		next, want time.Time
	}{
		"of two events":     {reason: "both are told by one write", waits: Report{UID: "a", Since: early}, next: late, want: early},
		"of none after one": {reason: "the one is told by it", waits: Report{UID: "a", Since: early}, want: early},
		"of another work":   {reason: "it was not this one's", waits: Report{UID: "b", Since: early}, next: late, want: late},
		"of one after none": {reason: "nothing waited for it", waits: Report{UID: "a"}, next: late, want: late},
		"out of order":      {reason: "the first counts", waits: Report{UID: "a", Since: late}, next: early, want: early},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			key, q := wire.WorkKey{Name: "w"}, newTestQueue(t)
			q.Enqueue(key, tt.waits)
			q.Enqueue(key, Report{UID: types.UID("a"), Since: tt.next})
			got, ok := q.Take(key)
			if !ok || got.UID != "a" || !got.Since.Equal(tt.want) || got.Received.IsZero() {
				t.Errorf("reason: %s: took %+v, want since %s", tt.reason, got, tt.want)
			}
			if _, again := q.Take(key); again {
				t.Error("it is taken twice")
			}
		})
	}
}

func TestReturnedReportYieldsToLaterReport(t *testing.T) {
	key, q := wire.WorkKey{Name: "w"}, newTestQueue(t)
	q.restore(key, Report{UID: "a", Since: time.Unix(1, 0)})
	taken, _ := q.Take(key)
	q.Enqueue(key, Report{UID: "a", Status: wire.WorkStatus{ObservedGeneration: 2}, Since: time.Unix(2, 0)})
	q.restore(key, taken)
	if got, _ := q.Pending(key); got.Status.ObservedGeneration != 2 || !got.Since.Equal(time.Unix(1, 0)) {
		t.Errorf("what waits is %+v", got)
	}
}
