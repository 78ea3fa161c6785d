// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudflare

import (
	"crypto/sha256"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"

	"golang.org/x/time/rate"

	"github.com/spokelet/spokelet/internal/impersonation"
	"github.com/spokelet/spokelet/internal/quota"
)

// maxTokens are the tokens that are known at a time, tokensPerHolder those of one holder.
const maxTokens, tokensPerHolder = 16384, 64

// tokenCache holds the tokens that were valid at their last review. A known token is still reviewed with
// each request; the cache only tells whose limits apply. Only reviewed tokens are added, and each
// holder has a share of the cache, so that neither invalid tokens nor many tokens of one holder evict
// those of others.
type tokenCache struct {
	mu       sync.Mutex // guards what is below
	byDigest map[string]*token
	room     *quota.Room[*token]
}

// token describes a valid token, without the token itself.
type token struct {
	digest, holder string
	limiter        *rate.Limiter
}

func newTokens() *tokenCache {
	return &tokenCache{byDigest: map[string]*token{}, room: quota.NewRoom[*token](maxTokens, tokensPerHolder)}
}

func tokenDigest(bearer string) string {
	digest := sha256.Sum256([]byte(bearer))
	return string(digest[:])
}

// get returns the token with a digest, or nil if it is not known.
func (t *tokenCache) get(digest string) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byDigest[digest]
}

// add adds the token of a user.
func (t *tokenCache) add(digest string, user authenticationv1.UserInfo, limiter *rate.Limiter) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.byDigest[digest]; ok { // it was shown twice at the same time
		return known
	}
	added := &token{digest: digest, holder: impersonation.Holder(user.Username), limiter: limiter}
	if oldest, full := t.room.Add(added.holder, added); full {
		t.removeLocked(oldest)
	}
	t.byDigest[digest] = added
	return added
}

// remove forgets a token that is not valid any more: from now on its address counts.
func (t *tokenCache) remove(gone *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(gone)
}

// removeLocked is called with mu held.
func (t *tokenCache) removeLocked(gone *token) {
	if t.byDigest[gone.digest] == gone {
		delete(t.byDigest, gone.digest)
		t.room.Remove(gone.holder, gone)
	}
}
