// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// drained pops all, and returns how many there were and the texts of notes.
func drained(t *testing.T, q *queue) (frames int, notes []string) {
	for frame := q.take(); frame != nil; frame = q.take() {
		if frames++; frame[0] == '{' {
			var e struct {
				Logs []struct {
					Message []string `json:"message"`
				} `json:"logs"`
			}
			if err := json.Unmarshal(frame, &e); err != nil {
				t.Fatal(err)
			}
			notes = append(notes, e.Logs[0].Message[0])
		}
	}
	return frames, notes
}

func TestAFullQueueDropsAndSaysSo(t *testing.T) {
	cases := map[string]struct {
		frame        string
		push, frames int
		note         string
	}{
		"none too many":  {frame: "x", push: maxFrames, frames: maxFrames},
		"one too many":   {frame: "x", push: maxFrames + 1, frames: maxFrames + 1, note: "spokelet: 1 event was dropped: the connection is slow"},
		"many too many":  {frame: "x", push: maxFrames + 9, frames: maxFrames + 1, note: "spokelet: 9 events were dropped: the connection is slow"},
		"large ones":     {frame: strings.Repeat("x", maxBytes/4), push: 4, frames: 4},
		"too large ones": {frame: strings.Repeat("x", maxBytes/4), push: 6, frames: 5, note: "spokelet: 2 events were dropped: the connection is slow"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newQueue("hello")
			for range tc.push {
				q.push([]byte(tc.frame))
			}
			frames, notes := drained(t, q)
			if frames != tc.frames || strings.Join(notes, "; ") != tc.note {
				t.Errorf("%d frames and not %d, and %q", frames, tc.frames, notes)
			}
			if q.bytes != 0 {
				t.Errorf("an empty queue counts %d bytes", q.bytes)
			}
		})
	}
}

func TestEventsAreDroppedUntilHalfOfAQueueIsFree(t *testing.T) {
	q := newQueue("hello")
	for range maxFrames + 1 {
		q.push([]byte("x"))
	}
	q.take()
	q.push([]byte("x")) // there is room for it, and it would be followed by another note
	for range maxFrames/2 - 1 {
		q.take()
	}
	q.push([]byte("after the note"))
	for range maxFrames / 2 {
		q.take()
	}
	if note := q.take(); !strings.Contains(string(note), "2 events were dropped") {
		t.Errorf("the note is not where the events are missing: %s", note)
	}
	if last := q.take(); string(last) != "after the note" {
		t.Errorf("%s is the last", last)
	}
}

func TestPopWaitsForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("hello")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan string, 10)
		go func() {
			for frame := q.pop(ctx); frame != nil; frame = q.pop(ctx) {
				got <- string(frame)
			}
			close(got)
		}()
		for i := range 3 {
			synctest.Wait()
			q.push(fmt.Append(nil, i))
			if frame := <-got; frame != strconv.Itoa(i) {
				t.Errorf("%s came and not %d", frame, i)
			}
		}
		if _, more := <-got; more {
			t.Error("something comes after the end")
		}
	})
}
