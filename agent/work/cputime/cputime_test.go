// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

var errOver = errors.New("over")

func TestLimitEndsComputation(t *testing.T) {
	const most = 20 * time.Millisecond
	ctx, end := Limit(t.Context(), most, errOver)
	for ctx.Err() == nil {
	}
	if used := end(); used < most || !errors.Is(context.Cause(ctx), errOver) {
		t.Errorf("ended after %s, because of %v", used, context.Cause(ctx))
	}
}

// TestLimitExcludesWaiting stands for a thread that is not let compute.
func TestLimitExcludesWaiting(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how long a thread has computed")
	}
	const most = 200 * time.Millisecond
	ctx, end := Limit(t.Context(), most, errOver)
	wait, cancel := context.WithTimeout(t.Context(), 5*most/2)
	defer cancel()
	<-wait.Done()
	if err := ctx.Err(); err != nil {
		t.Errorf("ended: %v", context.Cause(ctx))
	}
	if used := end(); used >= most || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("used %s, ended because of %v", used, context.Cause(ctx))
	}
}

func TestLimitEndsWithParent(t *testing.T) {
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, end := Limit(parent, time.Hour, errOver)
	defer end()
	gone := errors.New("gone")
	cancel(gone)
	if !errors.Is(context.Cause(ctx), gone) {
		t.Errorf("ended because of %v", context.Cause(ctx))
	}
}

// TestLimitBoundsDuration, however little it computes.
func TestLimitBoundsDuration(t *testing.T) {
	exceeded := 0
	l := &limiter{elapsed: func() time.Duration { return 0 }, budget: time.Hour, began: time.Now().Add(-maxDuration), cancel: func() { exceeded++ }}
	l.start(time.Hour)
	l.checkClock()
	l.stop()
	l.checkClock()
	if exceeded != 1 {
		t.Errorf("exceeded %d times", exceeded)
	}
}
