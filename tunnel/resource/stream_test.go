// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// mirrored collects what a receiver is told and lets a test wait for it.
type mirrored struct {
	mu     sync.Mutex
	change *sync.Cond
	have   map[string]string
	synced int
}

func newMirrored() *mirrored {
	m := &mirrored{have: map[string]string{}}
	m.change = sync.NewCond(&m.mu)
	return m
}

func (m *mirrored) do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	m.change.Broadcast()
}

func (m *mirrored) receiver() Receiver {
	return Receiver{
		Put:    func(r Resource) { m.do(func() { m.have[r.Key] = string(r.Body) }) },
		Delete: func(key string) { m.do(func() { delete(m.have, key) }) },
		Synced: func() { m.do(func() { m.synced++ }) },
	}
}

// wait returns once it is so.
func (m *mirrored) wait(so func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for !so() {
		m.change.Wait()
	}
}

// sessionTo serves an agent over HTTP/2 and returns what a session would be.
func sessionTo(t *testing.T, agent http.Handler) http.RoundTripper {
	t.Helper()
	server := httptest.NewUnstartedServer(agent)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	transport := &http.Transport{Protocols: server.Config.Protocols}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return redirect{transport, strings.TrimPrefix(server.URL, "http://")}
}

type redirect struct {
	http.RoundTripper
	host string
}

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host = r.host
	return r.RoundTripper.RoundTrip(req)
}

// pair is a hub and an agent that each publish one kind.
type pair struct {
	hub        *Hub
	down, up   *Source
	atAgent    *mirrored
	atHub      *mirrored
	session    http.RoundTripper
	downMirror *Mirror
}

func newPair(t *testing.T) *pair {
	p := &pair{hub: NewHub(), up: NewSource("up"), atAgent: newMirrored(), atHub: newMirrored()}
	p.hub.Publish("down", nil)
	hub := p.atHub.receiver()
	p.hub.Mirror("up", HubReceiver{
		Put: func(_ string, r Resource) { hub.Put(r) }, Delete: func(_, key string) { hub.Delete(key) }, Synced: func(string) { hub.Synced() },
	})
	p.down = p.hub.Source("c", "down")
	p.downMirror = NewMirror("down", p.atAgent.receiver())
	agent, err := NewAgent([]*Source{p.up}, []*Mirror{p.downMirror})
	if err != nil {
		t.Fatal(err)
	}
	p.session = sessionTo(t, agent)
	p.down.Complete()
	p.up.Complete()
	return p
}

// run starts a stream; stop ends it and returns why it ended.
func (p *pair) run(t *testing.T) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.hub.Run(ctx, "c", p.session) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func TestSyncReplicatesBothDirections(t *testing.T) {
	p := newPair(t)
	stop := p.run(t)
	defer stop()
	for i := range 2500 {
		if err := p.down.Put(Resource{Key: strconv.Itoa(i), Body: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.up.Put(Resource{Key: "status", Body: bytes.Repeat([]byte("y"), 100_000)}); err != nil {
		t.Fatal(err)
	}
	p.atAgent.wait(func() bool { return len(p.atAgent.have) == 2500 && p.atAgent.synced == 1 })
	p.atHub.wait(func() bool { return len(p.atHub.have["status"]) == 100_000 })
	_ = stop()

	p.down.Delete("7")
	stop = p.run(t)
	defer stop()
	p.atAgent.wait(func() bool { return len(p.atAgent.have) == 2499 && p.atAgent.synced == 2 })
	_ = stop()
}

func TestPutOfTooLargeResourceKeepsStream(t *testing.T) {
	p := newPair(t)
	defer p.run(t)()
	if err := p.down.Put(Resource{Key: "a", Body: []byte("small")}); err != nil {
		t.Fatal(err)
	}
	err := p.down.Put(Resource{Key: "a", Body: make([]byte, MaxBody+1)})
	if !errors.Is(err, ErrTooLarge) {
		t.Fatalf("Put = %v, want ErrTooLarge", err)
	}
	if err := p.down.Put(Resource{Key: "b", Body: make([]byte, MaxBody)}); err != nil {
		t.Fatal(err)
	}
	p.atAgent.wait(func() bool { return len(p.atAgent.have["b"]) == MaxBody })
	p.atAgent.do(func() {
		if p.atAgent.have["a"] != "small" {
			t.Errorf("a = %.10q", p.atAgent.have["a"])
		}
	})
}

func TestNewerStreamSupersedesOlder(t *testing.T) {
	p := newPair(t)
	first := make(chan error, 1)
	go func() { first <- p.hub.Run(t.Context(), "c", p.session) }()
	p.atAgent.wait(func() bool { return p.atAgent.synced == 1 })
	stop := p.run(t)
	defer stop()
	if err := <-first; !errors.Is(err, ErrSuperseded) {
		t.Errorf("the first stream ended with %v, want ErrSuperseded", err)
	}
	p.atAgent.wait(func() bool { return p.atAgent.synced == 2 })
	if err := p.down.Put(Resource{Key: "a", Body: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	p.atAgent.wait(func() bool { return maps.Equal(p.atAgent.have, map[string]string{"a": "1"}) })
}

// patientWriter puts off a write deadline that is to come: on a machine that stops for a second
// it would be over before anything can be written.
type patientWriter struct{ http.ResponseWriter }

func (p patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
func (p patientWriter) Flush()                      { _ = http.NewResponseController(p.ResponseWriter).Flush() }
func (p patientWriter) SetWriteDeadline(at time.Time) error {
	if time.Until(at) > 0 {
		at = at.Add(time.Minute)
	}
	return http.NewResponseController(p.ResponseWriter).SetWriteDeadline(at)
}

func TestSupersededAgentStreamReportsReason(t *testing.T) {
	p := newPair(t)
	agent, err := NewAgent([]*Source{p.up}, []*Mirror{p.downMirror})
	if err != nil {
		t.Fatal(err)
	}
	terms := make(chan context.CancelCauseFunc, 1)
	session := sessionTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := context.WithCancelCause(r.Context())
		defer end(nil)
		terms <- end
		agent.ServeHTTP(patientWriter{w}, r.WithContext(ctx))
	}))
	// The reason races with the end of the stream.
	for i := range 200 {
		ended := make(chan error, 1)
		go func() { ended <- p.hub.Run(t.Context(), "c", session) }()
		end := <-terms
		p.atAgent.wait(func() bool { return p.atAgent.synced > i })
		end(ErrSuperseded)
		if err := <-ended; !errors.Is(err, ErrSuperseded) {
			t.Fatalf("stream %d ended with %v, want ErrSuperseded", i, err)
		}
	}
}

func TestLazySourceLoadsWhenItSends(t *testing.T) {
	p := newPair(t)
	h := NewHub()
	version := "old"
	h.Publish("down", func(cluster, key string) (Resource, bool) {
		return Resource{Key: key, Body: []byte(cluster + " " + version)}, key != "vanished"
	})
	src := h.Source("c", "down")
	for _, key := range []string{"a", "vanished"} {
		if err := src.Put(Resource{Key: key, Body: []byte("c old")}); err != nil {
			t.Fatal(err)
		}
	}
	src.Complete()
	version = "new"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx, "c", p.session) }()
	p.atAgent.wait(func() bool { return p.atAgent.synced == 1 })
	cancel()
	<-ended
	if diff := cmp.Diff(map[string]string{"a": "c new"}, p.atAgent.have); diff != "" {
		t.Errorf("mirrored (-want +got):\n%s", diff)
	}
}

func TestKindsAreDistinct(t *testing.T) {
	if _, err := NewAgent([]*Source{NewSource("a")}, []*Mirror{NewMirror("a", Receiver{})}); err == nil {
		t.Error("a kind was taken twice")
	}
}

func TestPutRefusesInvalidResources(t *testing.T) {
	tests := map[string]struct {
		reason string
		in     Resource
		want   error
	}{
		"no key":       {reason: "the empty key means Synced", in: Resource{}, want: ErrInvalidKey},
		"long key":     {reason: "keys are kept", in: Resource{Key: strings.Repeat("k", MaxKey+1)}, want: ErrInvalidKey},
		"long uid":     {reason: "so are UIDs", in: Resource{Key: "k", UID: strings.Repeat("u", MaxKey+1)}, want: ErrInvalidKey},
		"just as long": {reason: "the limit is allowed", in: Resource{Key: strings.Repeat("k", MaxKey)}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := NewSource("k").Put(tc.in); !errors.Is(err, tc.want) {
				t.Errorf("%s: Put = %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}
