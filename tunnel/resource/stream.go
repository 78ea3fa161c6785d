// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"fmt"
	"sync"
	"time"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// conn is one bidirectional stream of messages; Send and Receive are called
// from one goroutine each.
type conn interface {
	Send(*rpcv1.SyncMessage) error
	Receive() (*rpcv1.SyncMessage, error)
}

// exchange joins the sources and mirrors of one end to those of one peer.
type exchange struct {
	// ends returns what takes part; it is asked once per stream.
	ends func() ([]*Source, []*Mirror)
	// limits bound what the peer may cost; nil where it is trusted.
	limits *limits

	mu      sync.Mutex
	current *serving
}

// serving is the stream that serves an exchange now.
type serving struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// acquire cancels the stream that is being served, if any, and waits for its end.
func (e *exchange) acquire(ctx context.Context) (context.Context, *serving) {
	ctx, cancel := context.WithCancelCause(ctx)
	mine := &serving{cancel: cancel, done: make(chan struct{})}
	e.mu.Lock()
	before := e.current
	e.current = mine
	e.mu.Unlock()
	if before != nil {
		before.cancel(ErrSuperseded)
		<-before.done
	}
	return ctx, mine
}

func (e *exchange) release(mine *serving) {
	mine.cancel(nil)
	close(mine.done)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == mine {
		e.current = nil
	}
}

// serve runs one stream to its end and returns why it ended; abort must make a
// blocked Send or Receive of c return. The stream begins only once the one before
// has ended: else the peer might cut that one first, without a reason.
func (e *exchange) serve(ctx context.Context, c conn, begin func() error, abort func()) error {
	ctx, mine := e.acquire(ctx)
	defer e.release(mine)
	if err := begin(); err != nil {
		return err
	}
	s := newStream(c, e.limits)
	sources, mirrors := e.ends()
	for _, src := range sources {
		f := src.open(e.limits.account(), s.wakeWriter)
		s.sources[src.kind] = f
		s.order = append(s.order, f)
	}
	for _, m := range mirrors {
		in := m.open()
		s.mirrors[m.kind] = in
		s.unsentInventories = append(s.unsentInventories, in)
	}
	defer s.close()
	return s.run(ctx, abort)
}

// stream is the traffic of one connection.
type stream struct {
	conn    conn
	wake    chan struct{}
	sources map[string]*sourceStream
	order   []*sourceStream
	mirrors map[string]*mirrorStream
	// unsentInventories are the mirrors whose inventory was not sent yet.
	unsentInventories []*mirrorStream

	limits *limits
	// inventoryTimers are the timers of the inventories that have begun, by kind; of the
	// reader, and of close after that. end ends the stream for one that takes too long.
	inventoryTimers map[string]*time.Timer
	cancel          context.CancelCauseFunc
}

func newStream(c conn, l *limits) *stream {
	return &stream{
		conn: c, wake: make(chan struct{}, 1), limits: l,
		sources: map[string]*sourceStream{}, mirrors: map[string]*mirrorStream{}, inventoryTimers: map[string]*time.Timer{},
	}
}

// close detaches the stream from sources and mirrors.
func (s *stream) close() {
	for _, timer := range s.inventoryTimers {
		timer.Stop()
	}
	for _, f := range s.sources {
		f.close()
	}
	for _, in := range s.mirrors {
		in.close()
	}
}

func (s *stream) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run reads and writes until one of them fails or ctx ends, then waits for both.
func (s *stream) run(ctx context.Context, abort func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s.cancel = cancel
	var wg sync.WaitGroup
	wg.Go(func() { cancel(s.read(ctx)) })
	// Waited for as well: abort must not reach a stream whose handler has returned.
	wg.Add(1)
	context.AfterFunc(ctx, func() {
		defer wg.Done()
		abort()
	})
	cancel(s.write(ctx))
	wg.Wait()
	return context.Cause(ctx)
}

func (s *stream) read(ctx context.Context) error {
	for {
		m, err := s.conn.Receive()
		if err != nil {
			return fmt.Errorf("sync receive: %w", err)
		}
		if err := s.handleMessage(ctx, m); err != nil {
			return err
		}
	}
}

func (s *stream) write(ctx context.Context) error {
	for {
		if err := s.sendInventories(); err != nil {
			return err
		}
		idle := true
		// One message of each kind in turn: a burst of one delays no other.
		for _, f := range s.order {
			m := f.next(time.Now())
			if m == nil {
				continue
			}
			idle = false
			if err := s.conn.Send(m); err != nil {
				return fmt.Errorf("sync send: %w", err)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !idle {
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sendInventories sends the inventories of mirrors that have become ready.
func (s *stream) sendInventories() error {
	var later []*mirrorStream
	for _, in := range s.unsentInventories {
		if !in.mirror.isReady() {
			later = append(later, in)
			continue
		}
		for _, m := range in.inventory() {
			if err := s.conn.Send(m); err != nil {
				return fmt.Errorf("sync send: %w", err)
			}
		}
	}
	s.unsentInventories = later
	return nil
}

// handleMessage handles one message of the peer. It waits for memory, until ctx ends.
func (s *stream) handleMessage(ctx context.Context, m *rpcv1.SyncMessage) error {
	switch m := m.GetMessage().(type) {
	case *rpcv1.SyncMessage_Inventory:
		// A newer peer may mirror what we do not publish: it gets no answer.
		if f, ok := s.sources[m.Inventory.GetKind()]; ok {
			return s.handleInventory(ctx, f, m.Inventory)
		}
		return nil
	case *rpcv1.SyncMessage_Put:
		return s.handlePut(ctx, m.Put)
	case *rpcv1.SyncMessage_Delete:
		in, err := s.mirrorOf(m.Delete.GetKind())
		if err != nil {
			return err
		}
		return in.delete(m.Delete)
	case *rpcv1.SyncMessage_Synced:
		in, err := s.mirrorOf(m.Synced.GetKind())
		if err != nil {
			return err
		}
		return in.synced()
	default:
		// A message of a later protocol: both sides use only what both announced.
		return nil
	}
}

func (s *stream) mirrorOf(kind string) (*mirrorStream, error) {
	in, ok := s.mirrors[kind]
	if !ok {
		return nil, fmt.Errorf("%w: kind %.64q was not asked for", ErrProtocol, kind)
	}
	return in, nil
}
