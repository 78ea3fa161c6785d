// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func TestShortSessionCountsAsFailure(t *testing.T) {
	const reset = time.Hour
	a := &Agent{config: AgentConfig{Backoff: Backoff{Reset: reset}, Logger: logr.Discard()}}
	reason := errors.New("refused")
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration
		ended  bool
		want   int
	}{
		"it has ended":              {reason: "the next one may, too", ended: true, want: 3},
		"its end is announced":      {reason: "a hub that refuses says so first, and would be asked without a pause", want: 3},
		"it ended after long":       {reason: "all was well", age: reset, ended: true},
		"it is replaced long after": {reason: "a hub restarts, or a certificate is renewed", age: reset},
	} {
		t.Run(name, func(t *testing.T) {
			s := &agentSession{connectedAt: time.Now().Add(-tc.age)}
			s.ctx, s.cancel = context.WithCancelCause(t.Context())
			s.replaceCtx, s.requestReplacement = context.WithCancelCause(s.ctx)
			s.requestReplacement(reason)
			if tc.ended {
				s.cancel(reason)
			}
			if got := a.countFailure(s, 2); got != tc.want {
				t.Errorf("%s: %d failures, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
