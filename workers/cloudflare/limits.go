// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/workers/access"
)

const (
	// Of tokens that were not valid before the hub reviews so many of one address a second,
	// and at once; and so many of all addresses.
	reviewRate, reviewBurst         = 5, 50
	allReviewsRate, allReviewsBurst = 100, 400
	// maxReviews are reviews of such tokens, reviewsPerHost those of one address.
	maxReviews, reviewsPerHost = 64, 16
	// maxHosts are the addresses, and maxHolders the holders, that have a rate of their own
	// at a time.
	maxHosts, maxHolders = 4096, 4096

	// Of the requests at a time an account has a quarter, so that others have room, a holder
	// less, and a token even less.
	accountShare, holderShare, tokenShare = 0.25, 0.15, 0.1
	// Of the memory for bodies: an account half, a holder three eighths, a token a quarter.
	accountMemory, holderMemory, tokenMemory = 0.5, 0.375, 0.25
	// holderRate is the rate of a holder, in those of a token.
	holderRate = 2
	// memoryTimeout is how long a request waits for memory: those that it waits for may be waiting
	// themselves.
	memoryTimeout = 30 * time.Second
)

// limits are applied before and after authentication. Authenticated requests are counted by account,
// by holder (see [impersonation.Holder]) and by token: users cannot create accounts, but the owner of
// one user or token may be able to create more of them.
type limits struct {
	reviews                           *quota.Slots // by address
	requests, accounts, tokenRequests *quota.Slots // by holder, account and token

	memory, holderMemory, tokenMemory *quota.Memory // by account, holder and token
	memoryTimeout                     time.Duration // shorter in tests

	tokens          *tokenCache
	hostReviews     *rateLimiters
	allReviews      *rate.Limiter // of reviews of all addresses
	holderRates     *rateLimiters
	newTokenLimiter func() *rate.Limiter
}

func newLimits(c Config) *limits {
	part := func(of float64) int64 { return max(1, int64(of*float64(c.Requests))) }
	bytes := func(of float64) int64 { return int64(of * float64(c.UploadBytes)) }
	return &limits{
		reviews:       quota.NewSlots(maxReviews, reviewsPerHost),
		requests:      quota.NewSlots(int64(c.Requests), part(holderShare)),
		accounts:      quota.NewSlots(math.MaxInt64, part(accountShare)),
		tokenRequests: quota.NewSlots(math.MaxInt64, part(tokenShare)),

		memory:        quota.NewMemory(bytes(accountMemory), c.UploadBytes),
		holderMemory:  quota.NewMemory(bytes(holderMemory), math.MaxInt64),
		tokenMemory:   quota.NewMemory(bytes(tokenMemory), math.MaxInt64),
		memoryTimeout: memoryTimeout,

		tokens:      newTokens(),
		hostReviews: newRates(maxHosts, reviewRate, reviewBurst),
		allReviews:  rate.NewLimiter(allReviewsRate, allReviewsBurst),
		holderRates: newRates(maxHolders, rate.Limit(holderRate*c.Rate), holderRate*c.Burst),
		newTokenLimiter: func() *rate.Limiter {
			return rate.NewLimiter(rate.Limit(c.Rate), c.Burst)
		},
	}
}

// rateLimiters has a limiter for each name, and evicts the least recently used one.
type rateLimiters struct {
	rate  rate.Limit
	burst int

	mu     sync.Mutex // makes look-up and insertion one step
	byName *lru.Cache // of *rate.Limiter
}

func newRates(size int, r rate.Limit, burst int) *rateLimiters {
	return &rateLimiters{rate: r, burst: burst, byName: lru.New(size)}
}

func (r *rateLimiters) get(name string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.byName.Get(name); ok {
		return known.(*rate.Limiter) //nolint:forcetypeassert // nothing else is in it
	}
	limiter := rate.NewLimiter(r.rate, r.burst)
	r.byName.Add(name, limiter)
	return limiter
}

// beginReview counts the review of a token that was not valid before, until leave is called.
func (l *limits) beginReview(host string) (leave func(), err error) {
	leave, full := quota.TakeAll(quota.Share{Slots: l.reviews, Holder: host})
	if full != nil {
		return nil, newTooManyError("too many requests at a time from this address with tokens that are new here")
	}
	if !l.hostReviews.get(host).Allow() || !l.allReviews.Allow() {
		leave()
		return nil, newTooManyError("too many requests with tokens that are new here")
	}
	return leave, nil
}

// beginRequest counts a request of a token until leave is called.
func (l *limits) beginRequest(t *token) (leave func(), err error) {
	leave, full := quota.TakeAll(
		quota.Share{Slots: l.requests, Holder: t.holder, What: "of this user, or of all users"},
		quota.Share{Slots: l.tokenRequests, Holder: t.digest, What: "with this token"},
	)
	if full != nil {
		return nil, newTooManyError("too many requests at a time " + full.What)
	}
	if !t.limiter.Allow() {
		leave()
		return nil, newTooManyError("too many requests with this token")
	}
	if !l.holderRates.get(t.holder).Allow() {
		leave()
		return nil, newTooManyError("too many requests of this user")
	}
	return leave, nil
}

// beginAccountRequest counts a request of who may make it until leave is called.
func (l *limits) beginAccountRequest(id string) (leave func(), err error) {
	leave, full := quota.TakeAll(quota.Share{Slots: l.accounts, Holder: id})
	if full != nil {
		return nil, newTooManyError("too many requests at a time for this account")
	}
	return leave, nil
}

func newTooManyError(text string) *apiError {
	return newAPIError(http.StatusTooManyRequests, codeTooMany, text)
}

// bodyMemory is the memory that the body of a request has taken. It is an upload.Memory.
type bodyMemory struct {
	ctx      context.Context //nolint:containedctx // of the request, which it ends with
	timeout  time.Duration   // how long it waits
	accounts []*quota.Account
}

func (l *limits) newBodyMemory(ctx context.Context, account string, t *token) *bodyMemory {
	return &bodyMemory{ctx: ctx, timeout: l.memoryTimeout, accounts: []*quota.Account{
		l.memory.Account(account), l.holderMemory.Account(t.holder), l.tokenMemory.Account(t.digest),
	}}
}

// errMemoryTimeout is returned by Grow after the timeout.
var errMemoryTimeout = newTooManyError("too many uploads at a time: try again when others have ended")

// Grow waits for n more bytes.
func (h *bodyMemory) Grow(n int64) error {
	ctx, cancel := context.WithTimeout(h.ctx, h.timeout)
	defer cancel()
	for i, account := range h.accounts {
		err := account.Await(ctx, n)
		if err == nil {
			continue
		}
		for _, taken := range h.accounts[:i] {
			taken.Shrink(n)
		}
		if errors.Is(err, quota.ErrTooLarge) {
			return newAPIError(http.StatusRequestEntityTooLarge, codeTooLarge, "the body takes more memory than one may have")
		}
		return errMemoryTimeout
	}
	return nil
}

// Shrink gives n bytes back.
func (h *bodyMemory) Shrink(n int64) {
	for _, account := range h.accounts {
		account.Shrink(n)
	}
}

// close releases everything.
func (h *bodyMemory) close() {
	for _, account := range h.accounts {
		account.Close()
	}
}

// rateLimitedAuthorizer limits reviews to the request rate of a holder: one request may need a review for each account.
type rateLimitedAuthorizer struct {
	access.Authorizer
	limiter *rate.Limiter
}

func (p rateLimitedAuthorizer) Authorize(ctx context.Context, user authenticationv1.UserInfo, namespace, verb string) error {
	if err := p.limiter.Wait(ctx); err != nil {
		return errTooManyAccounts
	}
	return p.Authorizer.Authorize(ctx, user, namespace, verb)
}

var errTooManyAccounts = newTooManyError("too many accounts to be looked through in the time of a request: set CLOUDFLARE_ACCOUNT_ID")
