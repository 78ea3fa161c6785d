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
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
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

// pods is a finder of one pod.
type pods map[wire.PodKey]types.UID

func (p pods) Locate(key wire.PodKey) (namespace string, uid types.UID, ok bool) {
	uid, ok = p[key]
	return key.Namespace, uid, ok
}

func TestPodsAreFoundDuringTheTermAlone(t *testing.T) {
	var l locator
	key := wire.PodKey{Namespace: "shop", Name: "web"}
	found := func() bool {
		_, uid, ok := l.Locate(key)
		return ok && uid == "1"
	}
	if found() {
		t.Error("a pod is found before the term")
	}
	leave := l.enter(pods{key: "1"})
	if !found() {
		t.Error("the pod is not found during the term")
	}
	leave()
	if found() {
		t.Error("a pod is found after the term")
	}
}

func TestTermEndsWithItsFirstEngine(t *testing.T) {
	failed := errors.New("boom")
	term := &term{engines: []func(context.Context) error{
		func(ctx context.Context) error { <-ctx.Done(); return nil },
		func(context.Context) error { return failed },
	}}
	if err := term.run(t.Context()); !errors.Is(err, failed) {
		t.Errorf("term: %v, want %v", err, failed)
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
