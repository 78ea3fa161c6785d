// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// fault is a crash of the agent at its n-th write: before it reached the API
// server, or after it was done but before the answer came. Nothing gets through
// from then on.
type fault struct {
	at    int64
	after bool
	count atomic.Int64
	hit   chan struct{}
}

func (f *fault) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper{next, func(req *http.Request) (*http.Response, error) {
		n := f.count.Load()
		if req.Method != http.MethodGet {
			n = f.count.Add(1)
		}
		if n < f.at {
			return next.RoundTrip(req)
		}
		if n == f.at && req.Method != http.MethodGet {
			defer close(f.hit)
			if f.after {
				if resp, err := next.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			}
		}
		return nil, errBoom
	}}
}

// roundTripper replaces what another one does, and leaves it closable.
type roundTripper struct {
	wrapped http.RoundTripper
	do      func(*http.Request) (*http.Response, error)
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r.do(req) }
func (r roundTripper) WrappedRoundTripper() http.RoundTripper              { return r.wrapped }

// runLifecycle is what the hub wants of one work, in turn; each chapter waits for the
// one before to be told of.
func runLifecycle(c *testCluster, h *testHub, name string, chapter int) (done func() bool) {
	applied := func(generation int64) func() bool {
		return func() bool {
			for _, cond := range h.status(name).Conditions {
				if cond.Type == conditionApplied && cond.Status == metav1.ConditionTrue && cond.ObservedGeneration == generation {
					return true
				}
			}
			return false
		}
	}
	switch chapter {
	case 0:
		h.want(name, 1, c.configMap("a", "k", "1"), c.configMap("b", "k", "1"))
		return applied(1)
	case 1:
		h.want(name, 2, c.configMap("b", "k", "2"), c.configMap("c", "k", "2"))
		return applied(2)
	default:
		h.want(name, 2)
		return func() bool { return h.status(name).Finalized }
	}
}

func TestCrashBeforeAnyWriteConverges(t *testing.T) {
	t.Parallel()
	crashAtEach(t, false)
}

func TestCrashAfterAnyWriteConverges(t *testing.T) {
	t.Parallel()
	crashAtEach(t, true)
}

// crashAtEach ends the agent at each of its writes. The hub goes on meanwhile, so that the
// next agent finds another wish than the one that was being carried out.
func crashAtEach(t *testing.T, after bool) {
	t.Helper()
	c := newCluster(t)
	for at := int64(1); crashAt(t, c, at, after) && !t.Failed(); at++ {
		t.Logf("write %d is survived", at)
	}
}

// crashAt tells whether the story has that many writes.
func crashAt(t *testing.T, c *testCluster, at int64, after bool) bool {
	h := newHub(t)
	name := fmt.Sprintf("crash-%d-%t-%s", at, after, c.namespace)
	f := &fault{at: at, after: after, hit: make(chan struct{})}
	faulty := c.start(h, func(cfg *Config) { cfg.REST.WrapTransport = wrapAfter(cfg.REST, f) })
	crashed := func() bool {
		select {
		case <-f.hit:
			return true
		default:
			return false
		}
	}
	chapter := 0
	for ; chapter < 3; chapter++ {
		done := runLifecycle(c, h, name, chapter)
		c.eventually("the chapter ends", func() bool { return crashed() || done() })
		if crashed() {
			break
		}
	}
	faulty.stop()
	if !crashed() {
		return false
	}
	for chapter++; chapter < 2; chapter++ {
		runLifecycle(c, h, name, chapter)
	}
	next := c.start(h)
	defer next.stop()
	if chapter == 2 {
		// Wished while nobody was there, or before the crash: carried out now.
		done := runLifecycle(c, h, name, 1)
		c.eventually("the second agent converges", done)
		c.eventually("exactly what is wanted exists", func() bool {
			return cmp.Equal(map[string]map[string]string{"b": {"k": "2"}, "c": {"k": "2"}}, c.configMaps())
		})
	}
	done := runLifecycle(c, h, name, 2)
	c.eventually("the work is finalized", done)
	if left := c.configMaps(); len(left) != 0 {
		t.Errorf("orphans: %v", left)
	}
	if _, ok := c.anchor(name); ok {
		t.Error("the anchor is left behind")
	}
	return true
}

func wrapAfter(cfg *rest.Config, f *fault) func(http.RoundTripper) http.RoundTripper {
	before := cfg.WrapTransport
	return func(next http.RoundTripper) http.RoundTripper {
		if before != nil {
			next = before(next)
		}
		return f.wrap(next)
	}
}
