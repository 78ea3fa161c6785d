// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// line is a queue of works and what is recorded of them.
type line struct {
	*backlog

	queued chan string
}

// newLine runs a backlog until the test ends; it belongs into a bubble.
func newLine(t *testing.T) *line {
	t.Helper()
	l := &line{backlog: newBacklog(), queued: make(chan string, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx, func(key string) { l.queued <- key })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// execute plays the execution of a work.
func (l *line) execute(key string) (postponed bool) {
	defer l.end(l.begin(key))
	if postponed = l.delays(); postponed {
		l.add(key)
	}
	return postponed
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// burst plays works until one is postponed.
func (l *line) burst() {
	for i := 0; !l.execute(fmt.Sprintf("burst %d", i)); i++ {
	}
}

// endless makes the burst go on: none of what comes is recorded as it comes.
func (l *line) endless() {
	l.burst()
	l.spare.SetLimit(0)
}

func TestWhatIsNoBurstIsRecordedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		defer l.end(l.begin("a work that hangs"))
		for i := range 1000 {
			pass(time.Second / recordRate)
			if l.execute(strconv.Itoa(i)) {
				t.Fatalf("work %d of %d a second: the hub is told before the anchor is up to date", i, recordRate)
			}
		}
		pass(freeRecords * time.Second / recordRate)
		for i := range freeRecords {
			if l.execute(strconv.Itoa(i)) {
				t.Fatalf("work %d of a few at once: the hub is told before the anchor is up to date", i)
			}
		}
		if !l.execute("of many at once") {
			t.Error("all of a burst is recorded as it comes")
		}
	})
}

func TestBacklogIsWorkedOffAfterTheBurstAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const works = 300
		l := newLine(t)
		l.endless()
		l.forget("burst " + strconv.Itoa(freeRecords))
		for i := range works {
			key := fmt.Sprintf("w%03d", i)
			for range 2 { // applied twice in the burst, recorded once
				if !l.execute(key) {
					t.Errorf("%s is recorded in the burst", key)
				}
			}
			pass(firstQuiet / 2)
		}
		pass(settleTime - firstQuiet)
		if len(l.queued) != 0 {
			t.Errorf("%d are recorded as soon as the burst pauses", len(l.queued))
		}
		pass(firstQuiet)
		recorded := map[string]bool{}
		for range works {
			if at := len(l.queued); at > recorders || at == 0 {
				t.Fatalf("%d are recorded at once, want 1 to %d", at, recorders)
			}
			key := <-l.queued
			if !l.begin(key) {
				t.Fatal("the execution of a queued work has not its turn")
			}
			if second := l.begin(key); second {
				t.Fatal("two executions have the turn of one work")
			}
			l.end(false)
			recorded[key] = true
			l.end(true)
			synctest.Wait()
		}
		if len(recorded) != works || len(l.queued) != 0 {
			t.Errorf("recorded %d works and %d more, want each of %d once", len(recorded), len(l.queued), works)
		}
	})
}

func TestASmallBacklogWaitsForAShortPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.burst()
		pass(firstQuiet + 2*moreQuiet)
		if n := len(l.queued); n != 1 {
			t.Errorf("%d are recorded, want 1", n)
		}
	})
}

func TestAnotherBurstGoesBeforeTheBacklogOfTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		l.endless()
		for i := range 10 * recorders {
			l.execute(strconv.Itoa(i))
		}
		for len(l.queued) == 0 {
			pass(firstQuiet)
		}
		l.execute("more")
		for range recorders {
			l.end(l.begin(<-l.queued))
		}
		synctest.Wait()
		// Whoever had been let in before the burst began is the last one.
		if n := len(l.queued); n > 1 {
			t.Errorf("%d are recorded in a burst", n)
		}
		pass(settleTime)
		if n := len(l.queued); n < recorders {
			t.Errorf("%d are recorded after it", n)
		}
	})
}

func TestBacklogDoesNotWaitForEverForABurstToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		var first time.Duration
		for start := time.Now(); first == 0 && time.Since(start) < 2*longestBurst; pass(firstQuiet / 2) {
			for l.burst(); len(l.queued) > 0; <-l.queued {
				first = time.Since(start)
			}
		}
		if first == 0 || first > longestBurst+firstQuiet {
			t.Errorf("first record after %s, want one within %s", first, longestBurst)
		}
	})
}

func TestForgottenWorkIsNotRecorded(t *testing.T) {
	b := newBacklog()
	b.add("a")
	b.add("b")
	b.forget("a")
	var got []string
	for key, ok := b.next(); ok; key, ok = b.next() {
		got = append(got, key)
	}
	if diff := cmp.Diff([]string{"b"}, got); diff != "" {
		t.Errorf("to be recorded (-want +got):\n%s", diff)
	}
}
