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

	"github.com/spokelet/spokelet/internal/quota"
)

// drained pops all, and returns how many there were and the texts of notes.
func drained(t *testing.T, q *queue) (frames int, notes []string) {
	for frame := q.next(); frame != nil; frame = q.next() {
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

const (
	half = maxFrames / 2 // of a queue, which one cluster may fill
	slow = ": the connection is slow, or there is no memory for more"
)

func TestFullQueueDropsAndReports(t *testing.T) {
	cases := map[string]struct {
		frame        string
		push, frames int
		note         string
	}{
		"none too many":  {frame: "x", push: half, frames: half},
		"one too many":   {frame: "x", push: half + 1, frames: half + 1, note: "spokelet: 1 event of cluster spoke1 was dropped" + slow},
		"many too many":  {frame: "x", push: half + 9, frames: half + 1, note: "spokelet: 9 events of cluster spoke1 were dropped" + slow},
		"large ones":     {frame: strings.Repeat("x", maxBytes/8), push: 4, frames: 4},
		"too large ones": {frame: strings.Repeat("x", maxBytes/8), push: 6, frames: 5, note: "spokelet: 2 events of cluster spoke1 were dropped" + slow},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := newQueue("hello", nil)
			for range tc.push {
				q.push("spoke1", []byte(tc.frame))
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

func TestQueueDropsUntilHalfIsRead(t *testing.T) {
	q := newQueue("hello", nil)
	for range half + 1 {
		q.push("spoke1", []byte("x"))
	}
	q.next()
	q.push("spoke1", []byte("x")) // there is room for it, and it would be followed by another note
	for range half/2 - 1 {
		q.next()
	}
	q.push("spoke1", []byte("after the note"))
	for range half / 2 {
		q.next()
	}
	if note := q.next(); !strings.Contains(string(note), "2 events of cluster spoke1 were dropped") {
		t.Errorf("the note is not where the events are missing: %s", note)
	}
	if last := q.next(); string(last) != "after the note" {
		t.Errorf("%s is the last", last)
	}
}

func TestQueueLeavesRoomForOtherClusters(t *testing.T) {
	q := newQueue("hello", nil)
	for range 10 * maxFrames {
		q.push("hostile", []byte("x"))
	}
	q.push("healthy", []byte("from the healthy one"))
	for range half {
		q.next()
	}
	if next := q.next(); string(next) != "from the healthy one" {
		t.Errorf("%.100s came", next)
	}
}

func TestQueueMemoryIsLimitedByAccount(t *testing.T) {
	const most = 1 << 20
	memory := quota.NewMemory(most, 2*most)
	var queues []*queue
	for range 10 {
		q := newQueue("hello", memory.Account("1234"))
		queues = append(queues, q)
		for range 10 {
			q.push("spoke1", make([]byte, most/20))
		}
	}
	other := newQueue("hello", memory.Account("5678"))
	other.push("spoke1", []byte("of another account"))
	if held := memory.Held(); held > most+100 {
		t.Errorf("%d bytes wait for an account, of %d", held, most)
	}
	if got := string(other.next()); got != "of another account" {
		t.Errorf("another account finds no room: %q", got)
	}
	dropped := 0
	for _, q := range queues {
		_, notes := drained(t, q)
		dropped += len(notes)
	}
	if dropped != 8 {
		t.Errorf("%d of 8 queues say that events were dropped", dropped)
	}
	if held := memory.Held(); held != 0 {
		t.Errorf("empty queues hold %d bytes", held)
	}
}

func TestPopWaitsForAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("hello", nil)
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
			q.push("spoke1", fmt.Append(nil, i))
			if frame := <-got; frame != strconv.Itoa(i) {
				t.Errorf("%s came and not %d", frame, i)
			}
		}
		if _, more := <-got; more {
			t.Error("something comes after the end")
		}
	})
}
