// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"math/rand/v2"
	"time"
)

// backoff grows from first to longest and is never the same twice.
func backoff(failures int, first, longest time.Duration) time.Duration {
	d := longest
	if failures < 20 {
		d = min(first<<failures, longest)
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // spreads load, guards nothing
}
