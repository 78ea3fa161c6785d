// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/spokelet/spokelet/internal/quota"
)

const (
	// DefaultTotal is a bound, in bytes, that goes with a process of 512 MiB.
	DefaultTotal = 128 << 20
	// DefaultAccount is what one account may have of it.
	DefaultAccount = 32 << 20
	// costPerByte are what becomes of each byte that is read: what it is decoded to, and its part of
	// an answer. It was measured.
	costPerByte = 3
)

// ErrExceeded is the error of reads beyond a limit. A later attempt may succeed.
var ErrExceeded = errors.New("requests have too much in memory: try again later, or at fewer at a time")

// Limiter limits the bytes of accounts. Its methods may be called concurrently.
type Limiter struct{ memory *quota.Memory } // by account

// New returns a Budget of bytes for all accounts together, and for each.
func New(total, account int64) *Limiter { return &Limiter{memory: quota.NewMemory(account, total)} }

// accountScope is what one context holds.
type accountScope struct {
	limiter *Limiter
	account string
	held    *quota.Account
}

type scopeKey struct{}

// WithAccount returns a context with which all that is read counts for an account, until the given
// context ends. That has to end.
func (b *Limiter) WithAccount(ctx context.Context, account string) context.Context {
	r := &accountScope{limiter: b, account: account, held: b.memory.Account(account)}
	context.AfterFunc(ctx, r.held.Close)
	return context.WithValue(ctx, scopeKey{}, r)
}

// WithScope returns a context for what is out of memory before the whole request ends: the caller
// calls done then. It counts for the same account.
func WithScope(ctx context.Context) (part context.Context, done context.CancelFunc) {
	part, done = context.WithCancel(ctx)
	if r, ok := ctx.Value(scopeKey{}).(*accountScope); ok {
		part = r.limiter.WithAccount(part, r.account)
	}
	return part, done
}

// Transport has the bodies of answers count, where the context of the request is one of [Of].
// Watches do not: an event is one object, and the next one replaces it.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if r, ok := request.Context().Value(scopeKey{}).(*accountScope); ok && request.URL.Query().Get("watch") == "" {
		answer.Body = &countedBody{ReadCloser: answer.Body, held: r.held}
	}
	return answer, nil
}

// countedBody is one that counts.
type countedBody struct {
	io.ReadCloser

	held *quota.Account
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.held.Grow(int64(n)*costPerByte) != nil { // its error names the account
		return 0, ErrExceeded
	}
	return n, err
}
