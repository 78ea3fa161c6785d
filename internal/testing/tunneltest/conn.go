// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// NetworkConfig says what a network between an agent and the hub is like.
type NetworkConfig struct {
	// Latency is the time one way.
	Latency time.Duration
	// Rate is in bytes per second and direction; 0 is no limit.
	Rate int
	// Buffer is what a direction holds, in bytes, before a writer waits; 256
	// KiB if zero.
	Buffer int
	// CutAfter cuts both directions when that many bytes were written in one
	// of them; 0 is never.
	CutAfter int
	// Slice is the most that one read returns; 0 is no limit.
	Slice int
}

// Network is the network between an agent and the hub: it fails when told to.
type Network struct {
	config NetworkConfig

	mu     sync.Mutex
	halves []*half // both directions of every connection so far
	frozen [2]bool // towards the agent, towards the hub: of new connections
}

// NewNetwork returns a network that works.
func NewNetwork(config NetworkConfig) *Network {
	if config.Buffer == 0 {
		config.Buffer = 256 << 10
	}
	return &Network{config: config}
}

// Pair returns the two ends of a new connection.
func (n *Network) Pair() (hub, agent net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	down, up := newHalf(n), newHalf(n)
	down.frozen, up.frozen = n.frozen[0], n.frozen[1]
	n.halves = append(n.halves, down, up)
	return &conn{in: up, out: down, local: "hub", remote: "agent"}, &conn{in: down, out: up, local: "agent", remote: "hub"}
}

// Freeze swallows from now on what is sent towards the hub, the agent or both,
// on new connections too.
func (n *Network) Freeze(toHub, toAgent bool) {
	n.mu.Lock()
	n.frozen = [2]bool{toAgent, toHub}
	n.mu.Unlock()
	for i, h := range n.all() {
		if i%2 == 0 && toAgent || i%2 == 1 && toHub {
			h.freeze()
		}
	}
}

// Cut ends every connection, with an error at both ends.
func (n *Network) Cut() {
	for _, h := range n.all() {
		h.end()
	}
}

// Written is the number of bytes that were sent in both directions.
func (n *Network) Written() int {
	sum := 0
	for _, h := range n.all() {
		h.mu.Lock()
		sum += h.written
		h.mu.Unlock()
	}
	return sum
}

func (n *Network) all() []*half {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.halves
}

// chunk is written bytes on their way.
type chunk struct {
	data []byte
	due  time.Time
}

// half is one direction of a connection.
type half struct {
	network *Network

	mu        sync.Mutex
	changed   sync.Cond
	chunks    []chunk
	size      int       // bytes in chunks
	free      time.Time // when the link can take the next byte
	written   int
	frozen    bool
	ended     bool
	rdeadline time.Time
	wdeadline time.Time
	timers    [2]*time.Timer // of the deadlines
}

func newHalf(n *Network) *half {
	h := &half{network: n}
	h.changed.L = &h.mu
	return h
}

func (h *half) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = true
}

func (h *half) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.changed.Broadcast()
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case passed(h.rdeadline, now):
			return 0, os.ErrDeadlineExceeded
		case len(h.chunks) > 0 && !h.chunks[0].due.After(now):
			return h.take(p), nil
		case h.ended && len(h.chunks) == 0:
			return 0, fmt.Errorf("network: %w", io.ErrUnexpectedEOF)
		}
		h.wait(now)
	}
}

// wait waits for a change, or for the first chunk to arrive. mu is held.
func (h *half) wait(now time.Time) {
	if len(h.chunks) > 0 {
		wake := time.AfterFunc(h.chunks[0].due.Sub(now), h.changed.Broadcast)
		defer wake.Stop()
	}
	h.changed.Wait()
}

func (h *half) take(p []byte) int {
	c := &h.chunks[0]
	if most := h.network.config.Slice; most > 0 && len(p) > most {
		p = p[:most]
	}
	n := copy(p, c.data)
	c.data = c.data[n:]
	h.size -= n
	if len(c.data) == 0 {
		h.chunks = h.chunks[1:]
	}
	h.changed.Broadcast()
	return n
}

func (h *half) write(p []byte) (n int, cut bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		room := h.network.config.Buffer - h.size
		switch {
		case h.ended:
			return n, false, fmt.Errorf("network: %w", io.ErrClosedPipe)
		case passed(h.wdeadline, time.Now()):
			return n, false, os.ErrDeadlineExceeded
		case n == len(p):
			return n, false, nil
		case room <= 0:
			h.changed.Wait()
			continue
		}
		part := p[n:min(len(p), n+room)]
		if after := h.network.config.CutAfter; after > 0 && h.written+len(part) >= after {
			part, cut = part[:after-h.written], true
		}
		h.put(part)
		n += len(part)
		if cut {
			return n, true, fmt.Errorf("network: %w", io.ErrClosedPipe)
		}
	}
}

// put sends bytes on their way. mu is held.
func (h *half) put(p []byte) {
	h.written += len(p)
	if h.frozen {
		// Nobody acknowledges what is swallowed, so it fills the buffer.
		h.size += len(p)
		return
	}
	now := time.Now()
	if h.free.Before(now) {
		h.free = now
	}
	if rate := h.network.config.Rate; rate > 0 {
		h.free = h.free.Add(time.Duration(len(p)) * time.Second / time.Duration(rate))
	}
	h.size += len(p)
	h.chunks = append(h.chunks, chunk{data: append([]byte(nil), p...), due: h.free.Add(h.network.config.Latency)})
	h.changed.Broadcast()
}

func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// setDeadline sets the reader's (0) or the writer's (1) deadline.
func (h *half) setDeadline(which int, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timers[which] != nil {
		h.timers[which].Stop()
	}
	// A time that has come needs no timer: the broadcast below tells of it. In a
	// synctest bubble the runtime would run such a timer at once, on a stack that
	// the race detector cannot always follow (Go 1.26).
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		h.timers[which] = time.AfterFunc(wait, h.changed.Broadcast)
	}
	if which == 0 {
		h.rdeadline = t
	} else {
		h.wdeadline = t
	}
	h.changed.Broadcast()
}

// conn is one end of a connection.
type conn struct {
	in, out       *half
	local, remote addr
}

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *conn) Write(p []byte) (int, error) {
	n, cut, err := c.out.write(p)
	if cut {
		_ = c.Close()
	}
	return n, err
}

func (c *conn) Close() error {
	c.in.end()
	c.out.end()
	return nil
}

func (c *conn) LocalAddr() net.Addr                { return c.local }
func (c *conn) RemoteAddr() net.Addr               { return c.remote }
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(0, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.setDeadline(1, t); return nil }

func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(0, t)
	c.out.setDeadline(1, t)
	return nil
}
