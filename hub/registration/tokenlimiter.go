// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/hub/registration/token"
)

// tokenLimiter checks from memory who holds a join token, so that a guess costs the hub a hash
// and a look-up. It decides whose attempts count, not who enrols: tokens does, and reads
// the records again.
type tokenLimiter struct {
	every rate.Limit
	burst int
	now   func() time.Time

	mu     sync.Mutex
	tokens map[string]*issuedToken // guarded by mu; by the name of the Secret
}

// issuedToken is a join token that was issued.
type issuedToken struct {
	record   token.Record // but for the key
	attempts *rate.Limiter
}

func newTokenLimiter(limits Limits, now func() time.Time) *tokenLimiter {
	return &tokenLimiter{
		every: perMinute(limits.TokenAttemptsPerMinute), burst: limits.TokenBurst,
		now: now, tokens: map[string]*issuedToken{},
	}
}

// allow counts one attempt of a cluster's token and reports whether it was one, and not
// one too many. That the token was used by another key is not asked: who had it before
// shares its attempts.
func (h *tokenLimiter) allow(cluster, presented string) bool {
	joinToken, err := token.Parse(presented)
	if err != nil {
		return false
	}
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	found, ok := h.tokens[token.SecretName(cluster)]
	if !ok {
		found = &issuedToken{} // which takes as long, and is nobody's
	}
	valid := found.record.Check(joinToken, token.Hash{}, now) == nil
	return valid && ok && found.attempts.AllowN(now, 1)
}

// eventHandler follows the records of join tokens.
func (h *tokenLimiter) eventHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    h.observe,
		UpdateFunc: func(_, obj any) { h.observe(obj) },
		DeleteFunc: h.remove,
	}
}

func (h *tokenLimiter) observe(obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	record, err := token.Decode(secret.Data)
	if err != nil || secret.Type != token.SecretType {
		h.remove(secret)
		return
	}
	record.BoundKey = nil
	h.mu.Lock()
	defer h.mu.Unlock()
	if found, ok := h.tokens[secret.Name]; ok && found.record.Hash == record.Hash {
		found.record = record
		return
	}
	h.tokens[secret.Name] = &issuedToken{record: record, attempts: rate.NewLimiter(h.every, h.burst)}
}

func (h *tokenLimiter) remove(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tokens, secret.Name)
}
