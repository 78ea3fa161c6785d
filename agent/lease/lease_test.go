// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "spokelet-agent"
	name      = "spokelet-agent"
)

var errBoom = errors.New("boom")

// cluster is an API server with one lease, and what is done under it.
type cluster struct {
	t       *testing.T
	clients *fake.Clientset
	timing  Timing
	cut     sync.Map     // identities that cannot reach the API server
	stale   sync.Map     // identities whose updates conflict
	working atomic.Int32 // processes that work now
	began   sync.Map     // identity -> time.Time of the begin of its last term
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, clients: fake.NewSimpleClientset()}
}

// process is a candidate that runs.
type process struct {
	*Holder
	ctx    context.Context
	cancel context.CancelFunc
	done   chan error
}

// start runs a candidate whose work takes that long to end.
func (c *cluster) start(identity string, ending time.Duration) *process {
	c.t.Helper()
	client := fake.NewSimpleClientset()
	client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if _, cut := c.cut.Load(identity); cut {
			return true, nil, errBoom
		}
		if _, stale := c.stale.Load(identity); stale && action.GetVerb() == "update" {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), name, errBoom)
		}
		o, err := c.clients.Invokes(action, nil)
		return true, o, err
	})
	h, err := New(Config{Client: client.CoordinationV1(), Namespace: namespace, Name: name, Identity: identity, Timing: c.timing, Logger: logr.Discard()})
	if err != nil {
		c.t.Fatal(err)
	}
	p := &process{Holder: h, done: make(chan error, 1)}
	p.ctx, p.cancel = context.WithCancel(c.t.Context())
	go func() {
		p.done <- h.Run(p.ctx, func(ctx context.Context) error {
			if n := c.working.Add(1); n > 1 {
				c.t.Errorf("%d processes work at once", n)
			}
			c.began.Store(identity, time.Now())
			<-ctx.Done()
			time.Sleep(ending)
			c.working.Add(-1)
			return nil
		})
	}()
	synctest.Wait()
	return p
}

// end stops a process in order and waits for it.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.cancel()
	if err := <-p.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func (c *cluster) works(identity string) bool {
	_, ok := c.began.Load(identity)
	return ok && c.working.Load() == 1
}

func (c *cluster) holder() string {
	c.t.Helper()
	lease, err := c.clients.CoordinationV1().Leases(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func TestOneProcessWorksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		start := time.Now()
		first := c.start("a", time.Second)
		if !c.works("a") || time.Since(start) > 0 {
			t.Fatal("a process alone does not work at once")
		}
		second := c.start("b", 0)
		time.Sleep(2 * time.Minute)
		if c.holder() != "a" {
			t.Errorf("the lease moved to %q", c.holder())
		}
		left := time.Now()
		first.end(t)
		time.Sleep(5 * time.Second)
		began, ok := c.began.Load("b")
		if !ok {
			t.Fatal("the second does not work 5 s after the first left")
		}
		if at := began.(time.Time).Sub(left); at < time.Second {
			t.Errorf("the second began after %v, while the first still worked", at)
		}
		second.end(t)
		if c.holder() != "" {
			t.Errorf("the lease is still held by %q", c.holder())
		}
	})
}

func TestRestartedProcessTakesOwnLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.cut.Store("a", true)
		first := c.start("a", 0) // never gets there: the lease below is that of the one before
		first.end(t)
		c.cut.Delete("a")
		before := c.start("a", 0)
		c.cut.Store("a", true) // it gives nothing up
		before.end(t)
		c.cut.Delete("a")
		if c.holder() != "a" {
			t.Fatalf("the lease is held by %q", c.holder())
		}
		again := c.start("a", 0)
		if !c.works("a") {
			t.Error("the same identity waits for its own lease")
		}
		again.end(t)
	})
}

func TestSilentHolderStopsBeforeNextStarts(t *testing.T) {
	for label, ending := range map[string]time.Duration{"work that ends at once": 0, "work that takes 3 s to end": 3 * time.Second} {
		t.Run(label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				first, second := c.start("a", ending), c.start("b", ending)
				time.Sleep(time.Minute)
				cut := time.Now()
				c.cut.Store("a", true)
				time.Sleep(25 * time.Second)
				began, ok := c.began.Load("b")
				if !ok || began.(time.Time).Sub(cut) > 25*time.Second {
					t.Errorf("the second began at %v, want within 25 s", began)
				}
				c.cut.Delete("a")
				time.Sleep(time.Minute)
				if c.holder() != "b" {
					t.Errorf("the lease is held by %q, want b", c.holder())
				}
				first.end(t)
				second.end(t)
			})
		})
	}
}

func TestElectionUsesConfiguredTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.timing = Timing{Duration: 137 * time.Second, Renewal: 107 * time.Second, Retry: 26 * time.Second}
		first, second := c.start("a", shutdownTime), c.start("b", 0)
		lease, err := c.clients.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || *lease.Spec.LeaseDurationSeconds != 137 {
			t.Errorf("lease %v, %v", lease.Spec, err)
		}
		cut := time.Now()
		c.cut.Store("a", true)
		time.Sleep(130 * time.Second)
		if !c.works("a") {
			t.Error("a holder that is silent for less than its lease lasts has ended")
		}
		time.Sleep(2 * time.Minute) // between two attempts are up to 2.2 times 26 s
		began, ok := c.began.Load("b")
		if !ok || began.(time.Time).Sub(cut) < 137*time.Second {
			t.Errorf("the second began at %v, want more than 137 s later", began)
		}
		first.end(t)
		second.end(t)
	})
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	for name, timing := range map[string]Timing{
		"no retry":                {Duration: 15 * time.Second, Renewal: 8 * time.Second},
		"a retry after the end":   {Duration: 15 * time.Second, Renewal: 8 * time.Second, Retry: 7 * time.Second},
		"a renewal after the end": {Duration: 8 * time.Second, Renewal: 8 * time.Second, Retry: time.Second},
		"less than a second":      {Duration: 900 * time.Millisecond, Renewal: 300 * time.Millisecond, Retry: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Client: fake.NewSimpleClientset().CoordinationV1(), Namespace: namespace, Name: "a", Identity: "a", Timing: timing}
			if _, err := New(config); !errors.Is(err, errTiming) {
				t.Errorf("New: %v", err)
			}
		})
	}
}

func TestProcessResumesAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.start("a", 0)
		c.cut.Store("a", true)
		time.Sleep(2 * time.Minute)
		if c.working.Load() != 0 {
			t.Error("it works without a lease")
		}
		c.cut.Delete("a")
		time.Sleep(5 * time.Second)
		if !c.works("a") {
			t.Error("it does not work 5 s after the API server came back")
		}
		p.end(t)
	})
}

func TestRunReturnsErrorOfWork(t *testing.T) {
	for label, err := range map[string]error{"an error": errBoom, "nothing": nil} {
		t.Run("work returns "+label, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, newErr := New(Config{
					Client: fake.NewSimpleClientset().CoordinationV1(), Namespace: namespace, Name: name, Identity: "a", Logger: logr.Discard(),
				})
				if newErr != nil {
					t.Fatal(newErr)
				}
				want := err
				if want == nil {
					want = errReturned
				}
				if got := h.Run(t.Context(), func(context.Context) error { return err }); !errors.Is(got, want) {
					t.Errorf("Run: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestLeaseOfOtherHolderIsNotReleased: an election that held the lease when it last
// looked tries to give it up, whoever holds it now.
func TestLeaseOfOtherHolderIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		other := c.start("b", 0)
		h, err := New(Config{
			Client: c.clients.CoordinationV1(), Namespace: namespace, Name: name, Identity: "a", Logger: logr.Discard(),
		})
		if err != nil {
			t.Fatal(err)
		}
		lock := h.lock(newTerm(func() {}, time.Minute))
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Update: %v, want %v", err, ErrNotHeld)
		}
		if c.holder() != "b" {
			t.Errorf("the lease is held by %q, want b", c.holder())
		}
		other.end(t)
	})
}

func TestTermEndsWhenAnotherHoldsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.start("a", 0)
		leases := c.clients.CoordinationV1().Leases(namespace)
		lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.HolderIdentity = new("b")
		// A conflict, as a real API server has it: the holder then reads the lease.
		c.stale.Store("a", true)
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if c.working.Load() != 0 {
			t.Error("it works 5 s after another holds the lease")
		}
		p.end(t)
		if c.holder() != "b" {
			t.Errorf("the lease is held by %q, want b", c.holder())
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestGuardRefusesWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.cut.Store("a", true)
		p := c.start("a", time.Hour) // work that does not heed its end
		sent := 0
		guarded := p.Guard(transport(func(*http.Request) (*http.Response, error) { sent++; return nil, errBoom }))
		send := func() error {
			_, err := guarded.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			return err
		}
		if err := send(); !errors.Is(err, ErrNotHeld) || sent != 0 {
			t.Errorf("before the lease: %v, %d sent", err, sent)
		}
		c.cut.Delete("a")
		time.Sleep(10 * time.Second)
		if err := send(); !errors.Is(err, errBoom) || sent != 1 {
			t.Errorf("with the lease: %v, %d sent", err, sent)
		}
		c.cut.Store("a", true)
		time.Sleep(DefaultTiming().workTime() + time.Second)
		if err := send(); !errors.Is(err, ErrNotHeld) || sent != 1 {
			t.Errorf("after the last renewal's time: %v, %d sent", err, sent)
		}
		p.end(t)
	})
}

func TestTermEndsByEitherClock(t *testing.T) {
	term := newTerm(func() {}, DefaultTiming().workTime())
	began := time.Now()
	term.extend(began)
	t.Cleanup(func() { _ = term.stopAndWait() })
	// Without a monotonic part: what a machine sees that has slept.
	if woken := began.Round(0).Add(time.Hour); term.isHeld(woken) {
		t.Error("the term outlasts a sleep of an hour")
	}
	if !term.isHeld(began.Add(time.Second)) {
		t.Error("the term does not last a second")
	}
}
