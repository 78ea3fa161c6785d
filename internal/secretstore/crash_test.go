// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/spokelet/spokelet/internal/testing/testscale"
)

// keyHistory is what one key had, one state after the other. What is not there is "".
type keyHistory struct {
	states []string
	// durable is the last state of which the store has said so.
	durable int
	// waits has the channels of states, by their index.
	waits map[int]<-chan struct{}
}

// simulation is a sequence of processes that are killed, and what is known of each key.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	server *apiServer
	keys   map[string]*keyHistory
	next   int
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	return &simulation{t: t, random: rand.New(rand.NewPCG(seed, 1)), server: newAPIServer(), keys: map[string]*keyHistory{}}
}

// network loses some requests, in every way, and all after the death of the process.
func (w *simulation) network(dead *atomic.Bool, faults float64) network {
	random := rand.New(rand.NewPCG(w.random.Uint64(), 1))
	return func(verb, _ string) outcome {
		if verb == "list" {
			return served
		}
		time.Sleep(upTo(random, slow))
		if dead.Load() {
			return lost
		}
		if random.Float64() >= faults {
			return served
		}
		return lost + outcome(random.IntN(3))
	}
}

// upTo is zero as often as not.
func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return max(0, time.Duration(random.Int64N(2*int64(most)))-most)
}

// act makes one change.
func (w *simulation) act(s *Store) {
	key := fmt.Sprintf("key-%02d", w.random.IntN(30))
	h := w.keys[key]
	if h == nil {
		h = &keyHistory{states: []string{""}, waits: map[int]<-chan struct{}{}}
		w.keys[key] = h
	}
	if w.random.IntN(3) == 0 {
		s.Delete(key)
		h.states = append(h.states, "")
		return
	}
	w.next++
	value := fmt.Sprintf("%d-%s", w.next, strings.Repeat("x", w.size()))
	durable, err := s.Put(key, []byte(value), w.random.IntN(2) == 0)
	if err != nil {
		w.t.Fatal(err)
	}
	h.states = append(h.states, value)
	h.waits[len(h.states)-1] = durable
}

// size is small for most values; some are too large to be folded with others.
func (w *simulation) size() int {
	if w.random.IntN(60) == 0 {
		return w.random.IntN(600 << 10)
	}
	return w.random.IntN(2000)
}

// live is the life of one process, until it is killed.
func (w *simulation) live(faults float64) {
	dead := &atomic.Bool{}
	s := start(w.t, w.server, w.network(dead, faults))
	w.check(s.Store)
	for range w.random.IntN(40) {
		w.act(s.Store)
		time.Sleep(upTo(w.random, 300*time.Millisecond))
		if w.random.IntN(20) == 0 {
			time.Sleep(5 * time.Second) // segments are swept
		}
		if w.random.IntN(10) == 0 {
			w.observe(s.Store)
		}
	}
	dead.Store(true)
	w.observe(s.Store)
	_ = s.end()
}

// observe records what the store says to be durable.
func (w *simulation) observe(s *Store) {
	synctest.Wait()
	for key, h := range w.keys {
		for i, durable := range h.waits {
			if closed(durable) {
				h.durable = max(h.durable, i)
				delete(h.waits, i)
			}
		}
		if s.settled(key) {
			h.durable = len(h.states) - 1
		}
	}
}

// check compares what a new process has read, and takes it for the begin of the story.
func (w *simulation) check(s *Store) {
	for _, key := range s.Keys() {
		if w.keys[key] == nil {
			w.t.Fatalf("%s: was never put", key)
		}
	}
	for key, h := range w.keys {
		value, _ := s.Get(key)
		found := -1
		for i := h.durable; i < len(h.states); i++ {
			if h.states[i] == string(value) {
				found = i
			}
		}
		if found < 0 {
			w.t.Fatalf("%s: is %.20q, want %.20q or one of %d later states", key, value, h.states[h.durable], len(h.states)-1-h.durable)
		}
		w.keys[key] = &keyHistory{states: []string{string(value)}, waits: map[int]<-chan struct{}{}}
	}
}

// calmDown has a last process without faults, after which nothing superfluous is left.
func (w *simulation) calmDown() {
	s := start(w.t, w.server, nil)
	w.check(s.Store)
	for range 10 {
		w.act(s.Store)
	}
	calm()
	wantConsistent(w.t, s.Store, w.server)
	want := allOf(s.Store)
	if err := s.end(); err != nil {
		w.t.Error(err)
	}
	wantStored(w.t, w.server, want)
}

func TestDurableRecordsSurviveRandomKills(t *testing.T) {
	for seed := range uint64(testscale.Of(20, 60)) {
		t.Run(fmt.Sprintf("story %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSimulation(t, seed)
				faults := []float64{0, 0.1, 0.5, 0.9}[seed%4]
				for range 8 {
					w.live(faults)
				}
				w.calmDown()
			})
		})
	}
}

// killedAt is a network that ends after some requests; the last of them had no answer, and
// may have had an effect. Reading is always possible.
func killedAt(kill int, last outcome) network {
	requests := 0
	return func(verb, _ string) outcome {
		if verb == "list" {
			return served
		}
		requests++
		switch {
		case requests < kill:
			return served
		case requests == kill:
			return last
		default:
			return lost
		}
	}
}

func TestKillBetweenAnyTwoRequestsLosesNothing(t *testing.T) {
	for kill := range 40 {
		for _, last := range []outcome{lost, answerless} {
			synctest.Test(t, func(t *testing.T) { killOnce(t, kill, last) })
		}
	}
}

// killOnce deletes a key of an old segment while others are folded.
func killOnce(t *testing.T, kill int, last outcome) {
	server := newAPIServer()
	before := start(t, server, nil)
	want := map[string]string{}
	for i, key := range []string{"gone", "kept", "changed"} {
		want[key] = strings.Repeat("old", 1000<<i)
		before.put(t, key, want[key])
	}
	_ = before.end()

	p := start(t, server, killedAt(kill, last))
	p.Delete("gone")
	open := map[string]string{}
	for i := range 20 {
		key := []string{"changed", "changed", fmt.Sprint("new-", i)}[i%3]
		value := strings.Repeat("new", 1+i*100)
		durable := p.begin(t, key, value, true)
		time.Sleep(2 * time.Duration(i) * slow) // longer than a segment waits to be swept
		if !closed(durable) {
			open[key] = value
			break
		}
		want[key] = value
	}
	time.Sleep(2 * time.Second)
	gone := p.settled("gone")
	_ = p.end()

	s, err := Open(t.Context(), Config{Name: "test", Secrets: server.client(nil), Logger: logr.Discard()})
	if err != nil || s.unreadable != 0 {
		t.Fatalf("killed at %d: %d are unreadable, error %v", kill, s.unreadable, err)
	}
	got := allOf(s)
	if gone || got["gone"] == "" {
		delete(want, "gone")
	}
	for key, value := range open {
		if got[key] == value {
			want[key] = value // it is durable without being said to be
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("killed at %d: stored (-want +got):\n%.500s", kill, diff)
	}
}
