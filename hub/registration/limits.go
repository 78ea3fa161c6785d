// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"k8s.io/utils/lru"

	"github.com/spokelet/spokelet/tunnel/origin"
)

var (
	errTooMany = errors.New("too many attempts from this address")
	errBusy    = errors.New("too many enrolments at once")
)

// Limits bound what strangers can make the hub do.
type Limits struct {
	// Concurrent enrolments that are worked on; default 32. Those that wait for
	// acceptance do not count: there is at most one for each cluster.
	Concurrent int
	// AttemptsPerMinute and Burst bound the attempts from one address; default
	// 60 and 30. Agents behind one NAT share them, and try again on refusal.
	AttemptsPerMinute int
	Burst             int
	// Addresses that are remembered; default 4096, the oldest is forgotten.
	Addresses int
}

// Default fills in what was left out.
func (l *Limits) Default() {
	for field, value := range map[*int]int{&l.Concurrent: 32, &l.AttemptsPerMinute: 60, &l.Burst: 30, &l.Addresses: 4096} {
		if *field == 0 {
			*field = value
		}
	}
}

// Validate refuses limits that would let nobody in.
func (l *Limits) Validate() error {
	if l.Concurrent < 1 || l.AttemptsPerMinute < 1 || l.Burst < 1 || l.Addresses < 1 {
		return errors.New("registration: limits must be positive")
	}
	return nil
}

// limiter applies Limits.
type limiter struct {
	limits Limits
	now    func() time.Time
	slots  chan struct{}

	mu        sync.Mutex // makes look-up and insertion one step
	addresses *lru.Cache // address -> *rate.Limiter
}

func newLimiter(limits Limits, now func() time.Time) *limiter {
	return &limiter{
		limits:    limits,
		now:       now,
		slots:     make(chan struct{}, limits.Concurrent),
		addresses: lru.New(limits.Addresses),
	}
}

// attempt counts one attempt of the caller's address.
func (l *limiter) attempt(ctx context.Context) error {
	if !l.of(remoteHost(ctx)).AllowN(l.now(), 1) {
		return errTooMany
	}
	return nil
}

func (l *limiter) of(address string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.addresses.Get(address); ok {
		if bucket, ok := found.(*rate.Limiter); ok {
			return bucket
		}
	}
	bucket := rate.NewLimiter(rate.Limit(float64(l.limits.AttemptsPerMinute)/60), l.limits.Burst)
	l.addresses.Add(address, bucket)
	return bucket
}

// slot takes one of the places for work, or fails at once: a queue of strangers
// would only be memory.
func (l *limiter) slot() (release func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, errBusy
	}
}

// remoteHost is where a caller is from, as package origin has it.
func remoteHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return origin.Of(p.Addr)
}
