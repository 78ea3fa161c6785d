// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secretstore

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

// process is a store that runs, in a bubble.
type process struct {
	*Store

	// end has Run end and returns its error.
	end func() error
}

// start begins a process on a server, through a network.
func start(t testing.TB, a *apiServer, n network) *process {
	t.Helper()
	return startWith(t, Config{Name: "test", Secrets: a.client(n), Logger: logr.Discard()})
}

func startWith(t testing.TB, cfg Config) *process {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	p := &process{Store: s, end: sync.OnceValue(func() error {
		cancel()
		return <-ended
	})}
	t.Cleanup(func() { _ = p.end() })
	return p
}

// put puts an urgent value and waits until it is durable.
func (p *process) put(t testing.TB, key, value string) {
	t.Helper()
	<-p.begin(t, key, value, true)
}

func (p *process) begin(t testing.TB, key, value string, urgent bool) <-chan struct{} {
	t.Helper()
	durable, err := p.Put(key, []byte(value), urgent)
	if err != nil {
		t.Fatal(err)
	}
	return durable
}

func closed(durable <-chan struct{}) bool {
	select {
	case <-durable:
		return true
	default:
		return false
	}
}

// lastError is the error of the last write, nil once one has succeeded.
func lastError(p *process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// settled reports whether the latest state of a key is durable, also if it is deleted.
func (s *Store) settled(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	return r == nil || !r.queued && !r.inFlight
}

// allOf is all that a store has.
func allOf(s *Store) map[string]string {
	out := map[string]string{}
	for _, key := range s.Keys() {
		value, _ := s.Get(key)
		out[key] = string(value)
	}
	return out
}

// wantStored fails unless a new process finds what is wanted.
func wantStored(t testing.TB, a *apiServer, want map[string]string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Name: "test", Secrets: a.client(nil), Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, allOf(s)); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// calm waits, by the clock of a bubble, until nothing is left to do, if no request fails.
func calm() {
	<-time.After(10 * time.Minute)
	synctest.Wait()
}

// wantConsistent fails unless what a store believes of its segments is so, and nothing is
// kept that nobody needs. After calm.
func wantConsistent(t testing.TB, s *Store, a *apiServer) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(s.segments) != len(a.secrets) {
		t.Errorf("%d segments are known, of %d", len(s.segments), len(a.secrets))
	}
	copies := map[string]int32{}
	for _, g := range s.segments {
		secret := a.secrets[g.name]
		if secret == nil {
			t.Errorf("%s: there is none", g.name)
			continue
		}
		stored, err := s.decodeSecret(secret)
		sequence, entries := stored.Sequence, stored.Entries
		if err != nil || sequence != g.sequence || secret.ResourceVersion != g.version || len(entries) != len(g.records) {
			t.Errorf("%s: sequence %d, version %s, %d entries, error %v; known are %d, %s, %d", g.name,
				sequence, secret.ResourceVersion, len(entries), err, g.sequence, g.version, len(g.records))
			continue
		}
		needed, size := 0, 0
		for i, e := range entries {
			copies[e.Key]++
			r := g.records[i]
			if r.key != e.Key {
				t.Errorf("%s: entry %d is of %s, known as %s", g.name, i, e.Key, r.key)
			}
			if r.segment == g {
				needed, size = needed+1, size+entrySize(e.Key, e.Value)
				if r.deleted != e.Deleted || !bytes.Equal(r.value, e.Value) {
					t.Errorf("%s: has not the latest value of %s", g.name, e.Key)
				}
			}
		}
		if needed != g.live || size != g.liveSize || needed == 0 {
			t.Errorf("%s: %d entries of %d bytes are needed, known are %d of %d", g.name, needed, size, g.live, g.liveSize)
		}
	}
	for key, r := range s.records {
		if r.copies != copies[key] || s.records[r.key] != r || !r.deleted && r.segment == nil || r.queued || r.inFlight || r.durable != nil || r.copies == 0 {
			t.Errorf("%s: is known as %+v, with %d copies", key, r, copies[key])
		}
	}
}

// logged counts messages.
type logged struct {
	mu       sync.Mutex
	messages []string // guarded by mu
}

func (l *logged) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.messages = append(l.messages, args)
	}, funcr.Options{})
}

func (l *logged) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.messages)
}
