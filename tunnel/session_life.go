// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// adapt uses the window that fits the number of open streams.
func (s *Session) adapt(open int) { s.wire.setWindow(s.rule.open(open)) }

// drain takes no new streams and ends the session with reason once those in
// flight have ended, or when the context does.
func (s *Session) drain(ctx context.Context, reason error) {
	select {
	case <-s.slots.drain():
		s.farewell(reason)
	case <-ctx.Done():
		reason = fmt.Errorf("%w: streams cut: %w", reason, ctx.Err())
	case <-s.Done():
	}
	s.end(reason)
}

// endAfter ends a draining session once it is empty. It waits for as long as
// the certificate lasts.
func (s *Session) endAfter(empty <-chan struct{}, reason error) {
	select {
	case <-empty:
		s.farewell(reason)
		s.end(reason)
	case <-s.Done():
	}
}

// farewell ends the conversation and HTTP/2 in order, so that the agent knows
// that nothing broke. What the agent does not answer in time is not waited for.
// It may well go first: the session has ended with reason all the same.
func (s *Session) farewell(reason error) {
	s.parting.Store(&reason)
	s.door.close()
	ctx, cancel := context.WithTimeout(s.life, shutdownGrace)
	defer cancel()
	_ = s.conn.Shutdown(ctx)
}

// keepalive pings until the session ends, and ends it when the peer is gone or
// wedged: the pipe's own keepalive sees the first of these only.
func (s *Session) keepalive(l Limits) {
	ticker := time.NewTicker(l.PingInterval)
	defer ticker.Stop()
	for {
		if err := s.ping(l.PingTimeout); err != nil {
			s.end(err)
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
	seen := s.wire.traffic().in
	answered := make(chan error, 1)
	go func() { answered <- s.conn.Ping(ctx) }()
	silence := time.NewTimer(timeout)
	defer silence.Stop()
	for {
		select {
		case err := <-answered:
			return s.pong(time.Since(began), err)
		case <-s.Done():
			return nil
		case <-silence.C:
			now := s.wire.traffic().in
			if now == seen {
				return fmt.Errorf("%w for %v", ErrUnresponsive, timeout)
			}
			seen = now
			silence.Reset(timeout)
		}
	}
}

// pong learns from a ping's round trip.
func (s *Session) pong(rtt time.Duration, err error) error {
	if err != nil {
		return fmt.Errorf("%w: ping: %w", ErrLost, err)
	}
	smoothed := rtt
	if old := time.Duration(s.rtt.Load()); old != 0 {
		smoothed = (7*old + rtt) / 8
	}
	s.rtt.Store(int64(smoothed))
	s.wire.setWindow(s.rule.ping(rtt, s.wire.bulkStreams(s.wire.window())))
	return nil
}

// reasonLabel is a session's end in one word, for metrics.
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
