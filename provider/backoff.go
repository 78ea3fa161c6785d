// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 30 * time.Second
)

// backoff spaces the attempts after an error. It may be used by several
// goroutines: the one that writes, and the one that waits.
type backoff struct {
	mu    sync.Mutex
	steps wait.Backoff
}

func newBackoff() *backoff {
	b := &backoff{}
	b.reset()
	return b
}

// reset begins anew, after a success.
func (b *backoff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.2, Cap: retryMax, Steps: 1 << 16}
}

// next returns how long to wait this time.
func (b *backoff) next() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.steps.Step()
}

// wait waits for that long, or until ctx ends.
func (b *backoff) wait(ctx context.Context) {
	timer := time.NewTimer(b.next())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
