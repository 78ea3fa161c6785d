// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// queueFixture is a queue of works and what is recorded of them.
type queueFixture struct {
	*Queue

	queued chan string
}

// newQueueFixture runs a backlog until the test ends; it belongs into a bubble.
func newQueueFixture(t *testing.T) *queueFixture {
	t.Helper()
	l := &queueFixture{Queue: NewQueue(), queued: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx, func(key string) { l.queued <- key })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// execute plays the execution of a work.
func (l *queueFixture) execute(key string) (postponed bool) {
	defer l.Finish(l.Start(key))
	if postponed = l.ShouldDelay(); postponed {
		l.Add(key)
	}
	return postponed
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// burst plays works until one is postponed.
func (l *queueFixture) burst() {
	for i := 0; !l.execute(fmt.Sprintf("burst %d", i)); i++ {
	}
}

// endless makes the burst go on: none of what comes is recorded as it comes.
func (l *queueFixture) endless() {
	l.burst()
	l.limiter.SetLimit(0)
}

func TestRecordQueueDelaysOnlyInBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newQueueFixture(t)
		defer l.Finish(l.Start("a work that hangs"))
		for i := range 1000 {
			pass(time.Second / RecordRate)
			if l.execute(strconv.Itoa(i)) {
				t.Fatalf("work %d of %d a second: the hub is told before the anchor is up to date", i, RecordRate)
			}
		}
		pass(RecordBurst * time.Second / RecordRate)
		for i := range RecordBurst {
			if l.execute(strconv.Itoa(i)) {
				t.Fatalf("work %d of a few at once: the hub is told before the anchor is up to date", i)
			}
		}
		if !l.execute("of many at once") {
			t.Error("all of a burst is recorded as it comes")
		}
	})
}

func TestRecordQueueDrainsAfterBurstInSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const works = 300
		l := newQueueFixture(t)
		l.endless()
		l.Remove("burst " + strconv.Itoa(RecordBurst))
		for i := range works {
			key := fmt.Sprintf("w%03d", i)
			for range 2 { // applied twice in the burst, recorded once
				if !l.execute(key) {
					t.Errorf("%s is recorded in the burst", key)
				}
			}
			pass(minQuiet / 2)
		}
		pass(maxQuiet - minQuiet)
		if len(l.queued) != 0 {
			t.Errorf("%d are recorded as soon as the burst pauses", len(l.queued))
		}
		pass(minQuiet)
		recorded := map[string]bool{}
		for range works {
			if at := len(l.queued); at > maxRecorders || at == 0 {
				t.Fatalf("%d are recorded at once, want 1 to %d", at, maxRecorders)
			}
			key := <-l.queued
			if !l.Start(key) {
				t.Fatal("the execution of a queued work has not its turn")
			}
			if second := l.Start(key); second {
				t.Fatal("two executions have the turn of one work")
			}
			l.Finish(false)
			recorded[key] = true
			l.Finish(true)
			synctest.Wait()
		}
		if len(recorded) != works || len(l.queued) != 0 {
			t.Errorf("recorded %d works and %d more, want each of %d once", len(recorded), len(l.queued), works)
		}
	})
}

func TestRecordQueueWaitsLessWhenShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newQueueFixture(t)
		l.burst()
		pass(minQuiet + 2*quietPerWork)
		if n := len(l.queued); n != 1 {
			t.Errorf("%d are recorded, want 1", n)
		}
	})
}

func TestRecordQueueYieldsToNextBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newQueueFixture(t)
		l.endless()
		for i := range 10 * maxRecorders {
			l.execute(strconv.Itoa(i))
		}
		for len(l.queued) == 0 {
			pass(minQuiet)
		}
		l.execute("more")
		for range maxRecorders {
			l.Finish(l.Start(<-l.queued))
		}
		synctest.Wait()
		// Whoever had been let in before the burst began is the last one.
		if n := len(l.queued); n > 1 {
			t.Errorf("%d are recorded in a burst", n)
		}
		pass(maxQuiet)
		if n := len(l.queued); n < maxRecorders {
			t.Errorf("%d are recorded after it", n)
		}
	})
}

func TestRecordQueueDrainsDuringEndlessBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newQueueFixture(t)
		var first time.Duration
		for start := time.Now(); first == 0 && time.Since(start) < 2*maxWait; pass(minQuiet / 2) {
			for l.burst(); len(l.queued) > 0; <-l.queued {
				first = time.Since(start)
			}
		}
		if first == 0 || first > maxWait+minQuiet {
			t.Errorf("first record after %s, want one within %s", first, maxWait)
		}
	})
}

func TestRecordQueueSkipsRemovedWork(t *testing.T) {
	b := NewQueue()
	b.Add("a")
	b.Add("b")
	b.Remove("a")
	var got []string
	for key, ok := b.next(); ok; key, ok = b.next() {
		got = append(got, key)
	}
	if diff := cmp.Diff([]string{"b"}, got); diff != "" {
		t.Errorf("to be recorded (-want +got):\n%s", diff)
	}
}
