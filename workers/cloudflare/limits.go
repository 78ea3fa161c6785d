// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"context"
	"crypto/sha256"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// knownTokens are how many tokens have a rate of their own at a time.
	knownTokens = 4096
	// strangers are tokens that were never valid: their rate is one for all of them, so that
	// nobody has the hub review what he invents.
	strangersRate  = 50
	strangersBurst = 200
	// tokenRequests and tokenUploads are what one token may have at a time: it can be slow, and
	// others are not to wait for it.
	tokenRequests = 20
	tokenUploads  = 2
)

// limits are those before and after authentication.
type limits struct {
	requests  *semaphore.Weighted
	uploads   *semaphore.Weighted
	upload    int64
	strangers *rate.Limiter
	tokens    *lru.Cache // digest to *account of a token
	rate      rate.Limit
	burst     int
}

// token is what is known of one.
type token struct {
	limiter *rate.Limiter
	// requests and uploads are those at a time.
	requests, uploads *semaphore.Weighted
	// valid: it was, once. It is reviewed each time nevertheless.
	valid atomic.Bool
}

func newLimits(c Config) *limits {
	return &limits{
		requests: semaphore.NewWeighted(int64(c.Requests)), uploads: semaphore.NewWeighted(c.UploadBytes), upload: uploadBytes(c.Limits),
		strangers: rate.NewLimiter(strangersRate, strangersBurst), tokens: lru.New(knownTokens), rate: rate.Limit(c.Rate), burst: c.Burst,
	}
}

// token returns what is known of a token. The token itself is not kept.
func (l *limits) token(bearer string) *token {
	digest := sha256.Sum256([]byte(bearer))
	if known, ok := l.tokens.Get(digest); ok {
		return known.(*token) //nolint:forcetypeassert // nothing else is in it
	}
	t := &token{
		limiter: rate.NewLimiter(l.rate, l.burst), requests: semaphore.NewWeighted(tokenRequests), uploads: semaphore.NewWeighted(tokenUploads),
	}
	l.tokens.Add(digest, t)
	return t
}

// allow tells whether a token may ask now.
func (l *limits) allow(t *token) bool {
	if !t.limiter.Allow() {
		return false
	}
	return t.valid.Load() || l.strangers.Allow()
}

// memory waits until an upload of a token may be read. The caller calls release.
func (l *limits) memory(ctx context.Context, t *token) (release func(), err error) {
	if err := t.uploads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if err := l.uploads.Acquire(ctx, l.upload); err != nil {
		t.uploads.Release(1)
		return nil, err
	}
	return func() {
		l.uploads.Release(l.upload)
		t.uploads.Release(1)
	}, nil
}
