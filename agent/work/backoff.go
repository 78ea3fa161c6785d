// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause before what is in the way of all works is tried again: from the first to
// the longest.
const (
	minStartupDelay = 20 * time.Millisecond
	maxStartupDelay = 30 * time.Second
)

// backoff grows from first to longest and is never the same twice.
func backoff(failures int, first, longest time.Duration) time.Duration {
	d := longest
	if failures < 20 {
		d = min(first<<failures, longest)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
