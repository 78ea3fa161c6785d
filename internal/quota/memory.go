// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrExhausted is wrapped by every refusal of a [Memory].
var ErrExhausted = errors.New("memory budget is exhausted")

// ErrTooLarge is wrapped, beside ErrExhausted, by the refusal of what would not fit even if
// nothing else were held: a retry is useless.
var ErrTooLarge = errors.New("more than one owner may hold")

// Memory counts the bytes that are held for each owner, and refuses or delays what
// goes beyond a bound. It is safe for concurrent use. A nil Memory has no bounds.
type Memory struct {
	perOwner, total int64
	// guaranteed is what an owner may hold however much the others do.
	guaranteed int64

	mu      sync.Mutex
	held    map[string]int64 // guarded by mu, without owners that hold nothing
	sum     int64            // guarded by mu
	refused uint64           // guarded by mu
	// freed is closed when bytes are released; guarded by mu, nil while nobody was refused
	// since.
	freed chan struct{}
}

// NewMemory returns a Memory of so many bytes for one owner and for all of them.
func NewMemory(perOwner, total int64) *Memory {
	return &Memory{perOwner: min(perOwner, total), total: total, held: map[string]int64{}}
}

// NewGuaranteedMemory is NewMemory where each owner may hold the guaranteed bytes
// however much the others do: else a few owners that hold all they may would leave
// nothing to the rest. The bound of all may be exceeded by that for each owner, so it
// is for owners whose number is bounded elsewhere, as that of accepted clusters is.
func NewGuaranteedMemory(perOwner, total, guaranteed int64) *Memory {
	m := NewMemory(perOwner, total)
	m.guaranteed = guaranteed
	return m
}

// Held returns how many bytes are held, of all owners together.
func (m *Memory) Held() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum
}

// Refused returns how often a bound was reached, delays included.
func (m *Memory) Refused() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// Account opens an account of the owner, which holds nothing yet. The caller closes
// it. An owner may have many, which share the owner's bound.
func (m *Memory) Account(owner string) *Account { return &Account{memory: m, owner: owner} }

// acquire takes n bytes for the owner. The channel that comes with an error is closed when
// bytes are released.
func (m *Memory) acquire(owner string, n int64) (freed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case n > m.perOwner:
		err = fmt.Errorf("%s: %d bytes, limit is %d: %w: %w", owner, n, m.perOwner, ErrTooLarge, ErrExhausted)
	case m.held[owner]+n > m.perOwner:
		err = fmt.Errorf("%s: limit is %d bytes: %w", owner, m.perOwner, ErrExhausted)
	case m.sum+n > m.total && m.held[owner]+n > m.guaranteed:
		err = fmt.Errorf("%s: limit of all is %d bytes: %w", owner, m.total, ErrExhausted)
	default:
		m.held[owner] += n
		m.sum += n
		return nil, nil
	}
	m.refused++
	if m.freed == nil {
		m.freed = make(chan struct{})
	}
	return m.freed, err
}

func (m *Memory) release(owner string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[owner] -= n; m.held[owner] <= 0 {
		delete(m.held, owner)
	}
	m.sum -= n
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
}

// Account is what one request, stream or object holds of its owner's memory. It is
// safe for concurrent use; a nil Account has no bounds.
type Account struct {
	memory *Memory
	owner  string

	mu     sync.Mutex
	held   int64 // guarded by mu
	closed bool  // guarded by mu
}

// Grow takes n more bytes, or none and an error that wraps ErrExhausted.
func (a *Account) Grow(n int64) error {
	_, err := a.grow(n)
	return err
}

// Await is Grow that waits for room until ctx ends. What can never fit is refused at
// once, with an error that wraps ErrTooLarge.
func (a *Account) Await(ctx context.Context, n int64) error {
	for {
		freed, err := a.grow(n)
		if err == nil || errors.Is(err, ErrTooLarge) {
			return err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

func (a *Account) grow(n int64) (<-chan struct{}, error) {
	if a == nil || a.memory == nil {
		return nil, nil
	}
	freed, err := a.memory.acquire(a.owner, n)
	if err != nil {
		return freed, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		// Close came first, and nobody will give this back.
		a.memory.release(a.owner, n)
		return nil, nil
	}
	a.held += n
	return nil, nil
}

// Shrink gives n bytes back, at most what is held.
func (a *Account) Shrink(n int64) {
	if a == nil || a.memory == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n = min(n, a.held); n > 0 {
		a.held -= n
		a.memory.release(a.owner, n)
	}
}

// Close gives back all that is held. Further calls do nothing.
func (a *Account) Close() {
	if a == nil || a.memory == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held > 0 {
		a.memory.release(a.owner, a.held)
	}
	a.held, a.closed = 0, true
}
