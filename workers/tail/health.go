// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spokelet/spokelet/workers/spoke"
	"github.com/spokelet/spokelet/workers/truncate"
)

// stableAfter is how long a part has to work before its failures count from zero again.
const stableAfter = 10 * time.Second

// maxReason bounds the text of a failure, in bytes.
const maxReason = 512

// errLogEnded: the server ended the log of a pod that is still there.
var errLogEnded = errors.New("the log ended")

// newBackoff returns the delays between attempts: half a second at first, doubled up to 30 s, and up to half as much
// again, so that tails do not ask together.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 30 * time.Second}
}

// healthReporter reports the first failure of a set of parts, and no other until all of them work again.
type healthReporter struct {
	report func(words string)

	mu      sync.Mutex
	failing map[string]bool
}

func newHealthReporter(say func(words string)) *healthReporter {
	return &healthReporter{report: say, failing: map[string]bool{}}
}

func (h *healthReporter) reportFailure(part, words string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failing) == 0 {
		h.report(words)
	}
	h.failing[part] = true
}

func (h *healthReporter) reportSuccess(part string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, part)
}

// runWithRetry calls once repeatedly, with backoff, until ctx ends. After a number of consecutive
// failures it reports the part as failed, and as working again stableAfter after once has called ok.
// A return without an error is no failure.
func (h *healthReporter) runWithRetry(ctx context.Context, part string, failures int, once func(ctx context.Context, ok func()) error) {
	defer h.reportSuccess(part)
	pause, failed := newBackoff(), 0
	for ctx.Err() == nil {
		var began time.Time
		var steady *time.Timer
		err := once(ctx, func() {
			began, steady = time.Now(), time.AfterFunc(stableAfter, func() { h.reportSuccess(part) })
		})
		if ctx.Err() != nil {
			return
		}
		if steady != nil {
			steady.Stop()
			if time.Since(began) >= stableAfter {
				pause, failed = newBackoff(), 0
			}
		}
		if err != nil {
			if failed++; failed == failures {
				h.reportFailure(part, publicReason(err))
			}
		}
		sleep(ctx, pause.Step())
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// partError is a failure of a part with a name.
type partError struct {
	part string
	err  error
}

func (e *partError) Error() string { return e.part + ": " + e.err.Error() }

// Unwrap returns the failure.
func (e *partError) Unwrap() error { return e.err }

// publicReason returns the text of an error for clients: messages of an API are repeated, other
// errors are described without addresses of the hub.
func publicReason(err error) string {
	text := "the connection failed"
	status := apierrors.APIStatus(nil)
	timeout := net.Error(nil)
	switch {
	case errors.As(err, &status):
		text = status.Status().Message
	case errors.Is(err, errLogEnded):
		text = errLogEnded.Error()
	case errors.Is(err, spoke.ErrTooLarge):
		text = spoke.ErrTooLarge.Error()
	case errors.Is(err, spoke.ErrExhausted):
		text = "there is no memory left for what it answers"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = "no answer in time"
	}
	if part := (*partError)(nil); errors.As(err, &part) {
		text = part.part + ": " + text
	}
	return truncate.Text(text, maxReason)
}
