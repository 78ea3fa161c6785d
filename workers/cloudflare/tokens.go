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

// tokens are those that were valid when they were shown last. Each is reviewed again whenever
// it is shown; that it is known says whose limits it has. None gets in without a review by the
// hub, and each holder has places of his own, so that neither invented tokens nor who has many
// push out those of others.
type tokens struct {
	mu    sync.Mutex // guards what is below
	known map[string]*token
	room  *quota.Room[*token]
}

// token is a valid one. The token itself is not kept.
type token struct {
	digest, holder string
	limiter        *rate.Limiter
}

func newTokens() *tokens {
	return &tokens{known: map[string]*token{}, room: quota.NewRoom[*token](maxTokens, tokensPerHolder)}
}

func digestOf(bearer string) string {
	digest := sha256.Sum256([]byte(bearer))
	return string(digest[:])
}

// of returns the token with a digest, or nil if it is not known.
func (t *tokens) of(digest string) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[digest]
}

// add makes a token known that is of a user.
func (t *tokens) add(digest string, user authenticationv1.UserInfo, limiter *rate.Limiter) *token {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.known[digest]; ok { // it was shown twice at the same time
		return known
	}
	added := &token{digest: digest, holder: impersonation.Holder(user.Username), limiter: limiter}
	if oldest, full := t.room.Add(added.holder, added); full {
		t.remove(oldest)
	}
	t.known[digest] = added
	return added
}

// drop forgets a token that is not valid any more: from now on its address counts.
func (t *tokens) drop(gone *token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(gone)
}

// remove is called with mu held.
func (t *tokens) remove(gone *token) {
	if t.known[gone.digest] == gone {
		delete(t.known, gone.digest)
		t.room.Remove(gone.holder, gone)
	}
}
