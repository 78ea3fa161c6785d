// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// shutdownTime is the part of a lease's duration in which the work stops; of a short duration it
// is this fraction.
const (
	shutdownTime     = 4 * time.Second
	shutdownFraction = 3
)

var (
	// ErrNotHeld is returned while this process does not hold the lease.
	ErrNotHeld = errors.New("lease is not held")

	errReturned = errors.New("work returned while the lease was held")
	errTiming   = errors.New("duration must be a second or more, and above the renewal; the renewal must be above 1.2 times the retry, and that above 0")
)

// Timing configures an election.
type Timing struct {
	// Duration is how long other processes wait for a silent holder.
	Duration time.Duration
	// Renewal bounds the attempts at one renewal, which begins Retry after the one
	// before.
	Renewal, Retry time.Duration
}

// DefaultTiming replaces a silent holder within half a minute.
func DefaultTiming() Timing {
	return Timing{Duration: 15 * time.Second, Renewal: 8 * time.Second, Retry: 2 * time.Second}
}

// Validate returns an error if an election cannot work with the timing.
func (t Timing) Validate() error {
	if t.Duration < time.Second || t.Duration <= t.Renewal || t.Retry <= 0 || t.Renewal <= time.Duration(leaderelection.JitterFactor*float64(t.Retry)) {
		return fmt.Errorf("%s, %s, %s: %w", t.Duration, t.Renewal, t.Retry, errTiming)
	}
	return nil
}

// workTime is how long after the begin of a renewal the work may continue. The rest of
// the duration is for the work to stop.
func (t Timing) workTime() time.Duration {
	return t.Duration - min(shutdownTime, t.Duration/shutdownFraction)
}

// Config names a lease and its holder.
type Config struct {
	Client coordinationv1.LeasesGetter
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Identity of this process, which no other running process has. The next process
	// with the same identity acquires the lease at once.
	Identity string
	// Timing of the election; the zero value is DefaultTiming.
	Timing Timing
	Logger logr.Logger
}

// Validate returns an error if a required field is missing.
func (c Config) Validate() error {
	if c.Client == nil || c.Namespace == "" || c.Name == "" || c.Identity == "" {
		return errors.New("client, namespace, name and identity are required")
	}
	return c.Timing.Validate()
}

// Holder is a candidate for a lease.
type Holder struct {
	config Config
	term   atomic.Pointer[term] // nil before the first
}

// New returns a candidate, which does nothing before Run.
func New(config Config) (*Holder, error) {
	if config.Timing == (Timing{}) {
		config.Timing = DefaultTiming()
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return &Holder{config: config}, nil
}

// Run calls work whenever the lease is held, until ctx ends. The context of work
// ends with ctx, and when the lease may be lost; the lease is released, and Run
// returns, when work has returned. If work returns before its context ends, Run
// returns its error. A Holder runs once.
func (h *Holder) Run(ctx context.Context, work func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := h.runTerm(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

// runTerm takes part in one election, and runs the work for one term.
func (h *Holder) runTerm(ctx context.Context, work func(context.Context) error) error {
	// The election outlives ctx: it releases the lease when the work has stopped.
	election, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer stop()
	timing := h.config.Timing
	t := newTerm(stop, timing.workTime())
	h.term.Store(t)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            h.lock(t),
		LeaseDuration:   timing.Duration,
		RenewDeadline:   timing.Renewal,
		RetryPeriod:     timing.Retry,
		ReleaseOnCancel: true,
		Name:            h.config.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			// Called in a goroutine of its own, which may start late.
			OnStartedLeading: func(context.Context) { t.run(h.withLogging(work)) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", h.config.Namespace, h.config.Name, err)
	}
	ended := context.AfterFunc(ctx, func() {
		_ = t.stopAndWait() // whose error is returned below
		stop()
	})
	defer ended()
	elector.Run(election)
	return t.stopAndWait()
}

// withLogging logs the begin and the end of work.
func (h *Holder) withLogging(work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		h.config.Logger.Info("Lease acquired, work starts", "lease", h.config.Name, "identity", h.config.Identity)
		err := work(ctx)
		h.config.Logger.Info("Work has stopped", "lease", h.config.Name, "identity", h.config.Identity)
		return err
	}
}

// Guard wraps a transport so that it sends nothing while the lease is not held.
func (h *Holder) Guard(next http.RoundTripper) http.RoundTripper {
	return &guard{next: next, check: h.checkHeld}
}

// checkHeld returns nil while the work may continue. Its error wraps ErrNotHeld.
func (h *Holder) checkHeld() error {
	if t := h.term.Load(); t == nil || !t.isHeld(time.Now()) {
		return fmt.Errorf("lease %s/%s: %w", h.config.Namespace, h.config.Name, ErrNotHeld)
	}
	return nil
}

func (h *Holder) lock(t *term) resourcelock.Interface {
	return &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: h.config.Namespace, Name: h.config.Name},
			Client:     h.config.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: h.config.Identity},
		},
		term:   t,
		logger: h.config.Logger,
	}
}
