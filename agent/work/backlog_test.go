// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBacklogIsWorkedOffAfterTheBurstAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const works = 3 * recorders
		b := newBacklog()
		ctx, cancel := context.WithCancel(t.Context())
		queued := make(chan string, works+1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx, func(key string) { queued <- key })
		}()
		for i := range works {
			b.add(fmt.Sprintf("w%02d", i))
			b.add(fmt.Sprintf("w%02d", i)) // applied twice in the burst, recorded once
			advance(ctx, settleTime/2)
		}
		if len(queued) != 0 {
			t.Errorf("%d are recorded while works still arrive", len(queued))
		}
		advance(ctx, settleTime)
		recorded := map[string]bool{}
		for range works {
			if at := len(queued); at > recorders || at == 0 {
				t.Fatalf("%d are recorded at once, want 1 to %d", at, recorders)
			}
			key := <-queued
			if !b.begin(key) || b.begin(key) {
				t.Fatal("one execution has the turn of a queued work, and only one")
			}
			recorded[key] = true
			b.end()
			synctest.Wait()
		}
		if len(recorded) != works || len(queued) != 0 {
			t.Errorf("recorded %d works and %d more, want each of %d once", len(recorded), len(queued), works)
		}
		cancel()
		<-done
	})
}

func TestBacklogDoesNotWaitForEverForABurstToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog()
		ctx, cancel := context.WithCancel(t.Context())
		var first time.Duration
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.run(ctx, func(string) {
				if first == 0 {
					first = time.Since(start)
				}
			})
		}()
		for time.Since(start) < 2*longestBurst {
			b.add("w")
			advance(ctx, settleTime/2)
		}
		cancel()
		<-done
		if first == 0 || first > longestBurst+settleTime {
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

// advance lets the bubble's time pass.
func advance(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	synctest.Wait()
}
