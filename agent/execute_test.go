// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/tunnel/resource"
)

// chronicle writes down what happens, in order.
type chronicle struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (c *chronicle) add(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
}

func (c *chronicle) SetStandby(standby bool) { c.add(fmt.Sprintf("standby %v", standby)) }

// status asks a door for a stream and returns the answer's code.
func status(t *testing.T, door http.Handler) int {
	t.Helper()
	w := httptest.NewRecorder()
	door.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	return w.Code
}

func TestTermOpensTheDoorAndTellsTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, door := &chronicle{}, &syncDoor{}
		if code := status(t, door); code != http.StatusServiceUnavailable {
			t.Errorf("before the term the door answers %d, want 503", code)
		}
		stream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			log.add(fmt.Sprintf("stream ends, superseded %v", errors.Is(context.Cause(r.Context()), resource.ErrSuperseded)))
		})
		engine := func(ctx context.Context) error {
			go func() { _ = status(t, door) }()
			<-ctx.Done()
			time.Sleep(time.Second) // what is in flight ends
			log.add("engine ends")
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := serveTerm(ctx, log, door, stream, engine); err != nil {
			t.Errorf("serveTerm: %v", err)
		}
		want := []string{"standby false", "standby true", "stream ends, superseded true", "engine ends"}
		if diff := cmp.Diff(want, log.lines); diff != "" {
			t.Errorf("a term (-want +got):\n%s", diff)
		}
		if code := status(t, door); code != http.StatusServiceUnavailable {
			t.Errorf("after the term the door answers %d, want 503", code)
		}
	})
}

func TestEngineThatFailsLeavesTheDoor(t *testing.T) {
	log, door, failed := &chronicle{}, &syncDoor{}, errors.New("boom")
	err := serveTerm(t.Context(), log, door, http.NotFoundHandler(), func(context.Context) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("serveTerm: %v, want %v", err, failed)
	}
	if diff := cmp.Diff([]string{"standby false", "standby true"}, log.lines); diff != "" {
		t.Errorf("a term (-want +got):\n%s", diff)
	}
}

func TestMetricsOfATermMayBeRegisteredAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 {
		term := &termMetrics{Registerer: registry}
		if err := term.Register(prometheus.NewCounter(prometheus.CounterOpts{Name: "works_total", Help: "Works."})); err != nil {
			t.Fatal(err)
		}
		term.clear()
	}
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("after the term: %v, %v, want no metrics", families, err)
	}
}
