// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff says how an agent comes back. The zero value of a field means its
// default.
type Backoff struct {
	// Base is the most that the second attempt waits (default 500 ms); the
	// first does not wait, and each further one may wait twice as long.
	Base time.Duration
	// Cap bounds every wait (default 30 s).
	Cap time.Duration
	// Reset is how long a session must have lived for the next attempt to be a
	// first one again (default 10 s).
	Reset time.Duration
}

// Default returns the backoff with a value in every field.
func (b Backoff) Default() Backoff {
	setDefault(&b.Base, 500*time.Millisecond)
	setDefault(&b.Cap, 30*time.Second)
	setDefault(&b.Reset, 10*time.Second)
	return b
}

// Validate reports fields of a defaulted backoff that make no sense.
func (b Backoff) Validate() error {
	if b.Base <= 0 || b.Cap < b.Base || b.Reset < 0 {
		return errors.New("backoff: want 0 < base <= cap and reset not negative")
	}
	return nil
}

// limit is the most that an attempt waits after a number of failures in a row.
func (b Backoff) limit(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	wait := b.Base
	for i := 1; i < failures && wait < b.Cap; i++ {
		wait *= 2
	}
	return min(wait, b.Cap)
}

// wait draws a delay, with full jitter: agents that lost one hub at the same
// moment do not return at the same moment.
func (b Backoff) wait(failures int) time.Duration {
	limit := b.limit(failures)
	if limit == 0 {
		return 0
	}
	return rand.N(limit) //nolint:gosec // spreads load, hides nothing
}
