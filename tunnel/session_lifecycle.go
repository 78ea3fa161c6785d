// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// updateWindow sets the window that fits the number of open streams.
func (s *Session) updateWindow(open int) { s.flow.setWindow(s.window.setStreams(open)) }

// drain takes no new streams and ends the session with reason once those in
// flight have ended, or when the context does.
func (s *Session) drain(ctx context.Context, reason error) {
	select {
	case <-s.streams.drain():
		s.shutDown(reason)
	case <-ctx.Done():
		reason = fmt.Errorf("%w: streams cut: %w", reason, ctx.Err())
	case <-s.Done():
	}
	s.closeWith(reason)
}

// closeAfter ends a draining session once it is empty. It waits for as long as
// the certificate lasts.
func (s *Session) closeAfter(empty <-chan struct{}, reason error) {
	select {
	case <-empty:
		s.shutDown(reason)
		s.closeWith(reason)
	case <-s.Done():
	}
}

// shutDown closes the control stream and HTTP/2 in order, so that the agent sees no
// failure. It does not wait for an agent that does not answer in time. If the agent
// closes first, the session still ends with reason.
func (s *Session) shutDown(reason error) {
	s.drainReason.Store(&reason)
	s.control.close()
	ctx, cancel := context.WithTimeout(s.ctx, shutdownGrace)
	defer cancel()
	_ = s.conn.Shutdown(ctx)
}

// keepalive pings until the session ends, and closes it when the peer is gone or
// wedged: the pipe's own keepalive detects only the first.
func (s *Session) keepalive(l Limits) {
	ticker := time.NewTicker(l.PingInterval)
	defer ticker.Stop()
	for {
		if err := s.ping(l.PingTimeout); err != nil {
			s.closeWith(err)
			return
		}
		select {
		case <-ticker.C:
		case <-s.Done():
			return
		}
	}
}

// ping waits for one ping's answer. An answer may be late while anything else
// arrives, as it queues behind bulk data on a slow link; silence may not.
func (s *Session) ping(timeout time.Duration) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began := time.Now()
	seen := s.flow.traffic().in
	answered := make(chan error, 1)
	go func() { answered <- s.conn.Ping(ctx) }()
	silence := time.NewTimer(timeout)
	defer silence.Stop()
	for {
		select {
		case err := <-answered:
			return s.recordRTT(time.Since(began), err)
		case <-s.Done():
			return nil
		case <-silence.C:
			now := s.flow.traffic().in
			if now == seen {
				return fmt.Errorf("%w for %v", ErrUnresponsive, timeout)
			}
			seen = now
			silence.Reset(timeout)
		}
	}
}

// recordRTT updates the smoothed round trip and the window.
func (s *Session) recordRTT(rtt time.Duration, err error) error {
	if err != nil {
		return fmt.Errorf("%w: ping: %w", ErrLost, err)
	}
	smoothed := rtt
	if old := time.Duration(s.rtt.Load()); old != 0 {
		smoothed = (7*old + rtt) / 8
	}
	s.rtt.Store(int64(smoothed))
	s.flow.setWindow(s.window.recordPing(rtt, s.flow.bulkStreams(s.flow.window())))
	return nil
}

// reasonLabel is the metrics label of the error that ended a session.
func reasonLabel(err error) string {
	for _, r := range []struct {
		err   error
		label string
	}{
		{ErrExpired, "expired"},
		{ErrUntrusted, "untrusted"},
		{ErrUnresponsive, "unresponsive"},
		{ErrRefused, "refused"},
		{ErrDraining, "drained"},
		{ErrClosed, "closed"},
		{ErrLost, "lost"},
	} {
		if errors.Is(err, r.err) {
			return r.label
		}
	}
	return "disconnected"
}
