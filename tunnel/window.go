// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"math/bits"
	"sync"
	"time"
)

// windowSizer decides how much one stream may have in flight towards this side.
// It has no clock and does no I/O. Three things make the window smaller:
//
//   - the budget, shared by the open streams: it is memory here;
//   - several bulk streams at once, which share one stream's window, since a
//     small answer queues behind the sum of them on a slow link;
//   - pings that take much longer than the fastest one did: a queue in the
//     network, on a link slower than the window assumes.
type windowSizer struct {
	limits Limits

	mu      sync.Mutex
	streams int
	bulk    int
	minRTT  time.Duration // fastest ping
	divisor int           // divides the window: 1, 2, 4 ... by the pings
	current int
}

func newWindowSizer(l Limits) *windowSizer {
	return &windowSizer{limits: l, divisor: 1, current: l.StreamWindow}
}

// setStreams records the number of open streams and returns the window to use.
func (w *windowSizer) setStreams(streams int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = streams
	return w.decide()
}

// recordPing records a ping's round trip and the bulk streams since the last one, and
// returns the window to use.
func (w *windowSizer) recordPing(rtt time.Duration, bulk int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bulk = bulk
	if w.minRTT == 0 || rtt < w.minRTT {
		w.minRTT = rtt
	}
	switch {
	case bulk > 0 && rtt > 2*w.minRTT+queueTolerance:
		w.shrink(rtt)
	case rtt < w.minRTT+w.minRTT/2+queueTolerance/2:
		w.divisor = max(w.divisor/2, 1)
	}
	return w.decide()
}

// shrink halves the window, and again for each doubling of slowPing that the
// ping took: on such a link the next ping is long in coming. mu is held.
func (w *windowSizer) shrink(rtt time.Duration) {
	floor := w.limits.MinStreamWindow
	if rtt > slowPing {
		floor = slowWindow
	}
	for ; rtt > 0 && w.limits.StreamWindow/w.divisor >= 2*floor; rtt /= 2 {
		w.divisor *= 2
		if rtt <= slowPing {
			return
		}
	}
}

// queueTolerance is the delay by queues that is not worth a smaller window.
const queueTolerance = 20 * time.Millisecond

// A ping that queues for longer than slowPing is on a link where even the
// smallest window is seconds; there it may shrink to slowWindow. Less would not
// do: HTTP/2 in Go gives back a window in pieces of that size.
const (
	slowPing   = 500 * time.Millisecond
	slowWindow = 4 << 10
)

// decide shrinks at once. It grows only when there is room for twice the
// streams, so that a stream more and a stream less do not send SETTINGS each.
func (w *windowSizer) decide() int {
	if fit := w.windowFor(w.streams); fit < w.current {
		w.current = fit
	}
	if fit := w.windowFor(2 * w.streams); fit > w.current {
		w.current = fit
	}
	return w.current
}

// windowFor returns the window for a number of streams: a power of two, or the limit.
func (w *windowSizer) windowFor(streams int) int {
	window := w.limits.StreamWindow / max(w.bulk, 1) / w.divisor
	window = min(window, w.limits.WindowBudget/max(streams, 1))
	if window < w.limits.StreamWindow && window > 0 {
		window = 1 << (bits.Len(uint(window)) - 1)
	}
	return max(window, min(w.limits.MinStreamWindow, w.limits.StreamWindow/w.divisor))
}
