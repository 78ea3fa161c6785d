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

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/connlimit"
)

var (
	errRateLimit = errors.New("too many attempts from this address")
	errBusy      = errors.New("too many enrolments at once")
)

// Limits bound what strangers can make the hub do, and those who hold a join token.
type Limits struct {
	// Concurrent enrolments that are worked on; default 32. Those that wait for
	// acceptance do not count: there is at most one for each cluster. Those with a
	// valid token have as many places of their own.
	Concurrent int
	// AttemptsPerMinute and Burst bound the attempts from one address without a valid
	// token; default 60 and 30.
	AttemptsPerMinute int
	Burst             int
	// TokenAttemptsPerMinute and TokenBurst bound the attempts with one valid token,
	// from wherever; default 12 and 6. Those beyond count as if there was none.
	TokenAttemptsPerMinute int
	TokenBurst             int
	// Addresses that are remembered; default 4096, the oldest is forgotten.
	Addresses int
}

// Default fills in what was left out.
func (l *Limits) Default() {
	for field, value := range map[*int]int{
		&l.Concurrent: 32, &l.AttemptsPerMinute: 60, &l.Burst: 30, &l.Addresses: 4096,
		&l.TokenAttemptsPerMinute: 12, &l.TokenBurst: 6,
	} {
		if *field == 0 {
			*field = value
		}
	}
}

// Validate refuses limits that would let nobody in.
func (l *Limits) Validate() error {
	if min(l.Concurrent, l.AttemptsPerMinute, l.Burst, l.Addresses, l.TokenAttemptsPerMinute, l.TokenBurst) < 1 {
		return errors.New("registration: limits must be positive")
	}
	return nil
}

// limiter applies Limits.
type limiter struct {
	limits       Limits
	now          func() time.Time
	tokenLimiter *tokenLimiter
	// anonymousSlots are the places for work of strangers, tokenSlots of those who hold a
	// token.
	anonymousSlots, tokenSlots chan struct{}

	mu        sync.Mutex // makes look-up and insertion one step
	addresses *lru.Cache // address -> *rate.Limiter
}

func newLimiter(limits Limits, now func() time.Time) *limiter {
	return &limiter{
		limits:         limits,
		now:            now,
		tokenLimiter:   newTokenLimiter(limits, now),
		anonymousSlots: make(chan struct{}, limits.Concurrent),
		tokenSlots:     make(chan struct{}, limits.Concurrent),
		addresses:      lru.New(limits.Addresses),
	}
}

// allow counts one attempt: of the token if the caller holds a valid one, else of the
// caller's address. Who holds one has a place among such.
func (l *limiter) allow(ctx context.Context, request *rpcv1.EnrollRequest) (holds bool, err error) {
	if l.tokenLimiter.allow(request.GetCluster(), request.GetToken()) {
		return true, nil
	}
	if !l.addressLimiter(clientAddress(ctx)).AllowN(l.now(), 1) {
		return false, errRateLimit
	}
	return false, nil
}

func (l *limiter) addressLimiter(address string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.addresses.Get(address); ok {
		if bucket, ok := found.(*rate.Limiter); ok {
			return bucket
		}
	}
	bucket := rate.NewLimiter(perMinute(l.limits.AttemptsPerMinute), l.limits.Burst)
	l.addresses.Add(address, bucket)
	return bucket
}

func perMinute(n int) rate.Limit { return rate.Limit(float64(n) / 60) }

// acquire takes one of the places for work. For a stranger it fails at once, as a queue of
// such would only be memory. A caller with a token waits: how many wait is bounded by the
// attempts of the tokens.
func (l *limiter) acquire(ctx context.Context, holds bool) (release func(), err error) {
	if holds {
		select {
		case l.tokenSlots <- struct{}{}:
			return func() { <-l.tokenSlots }, nil
		case <-ctx.Done():
			return nil, errBusy
		}
	}
	select {
	case l.anonymousSlots <- struct{}{}:
		return func() { <-l.anonymousSlots }, nil
	default:
		return nil, errBusy
	}
}

// clientAddress is where a caller is from, as package connlimit has it.
func clientAddress(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return connlimit.HostOf(p.Addr)
}
