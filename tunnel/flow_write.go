// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// writeQueue is how much of HTTP/2's output waits for the writer, in bytes.
	// It is less than one stream's window, so it delays nothing that the window
	// would not.
	writeQueue = 64 << 10
	// burstGap and burstLength tell a burst, which is worth gathering, from the
	// two frames of one small answer, which are not worth waking the writer.
	burstGap    = 35 * time.Microsecond
	burstLength = 3
	// closeGrace is how long Close waits for a peer that does not read.
	closeGrace = time.Second
)

// batch is bytes on their way to one write.
type batch struct{ b []byte }

// batches is a pool of memory for queues that are not empty.
var batches = sync.Pool{New: func() any { return &batch{b: make([]byte, 0, writeQueue)} }}

// Write passes p on, which is whole or parts of frames. HTTP/2 flushes after
// every frame, and over a pipe each flush costs a TLS record and a message on
// both sides. In a burst Write therefore queues p for the writer and returns,
// so that what follows while the writer is busy goes along with it; it waits
// only while the queue is full. Then an error is that of an earlier write.
func (c *flowConn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for c.werr == nil && !c.closed && c.queuedBytes() > 0 && c.queuedBytes()+len(p) > writeQueue {
		c.wcond.Wait()
	}
	switch {
	case c.werr != nil:
		return 0, c.werr
	case c.closed:
		return 0, net.ErrClosed
	}
	gather := c.isBurst() || c.writing || c.queuedBytes() > 0
	c.framer.advance(p)
	if gather {
		c.enqueue(p)
		c.inject()
		return len(p), nil
	}
	if err := c.write(p); err != nil {
		return 0, err
	}
	c.inject()
	return len(p), nil
}

// isBurst counts writes that follow each other closely, and reports whether there are
// enough to gather them. wmu is held.
func (c *flowConn) isBurst() bool {
	if time.Since(c.lastWrite) > burstGap {
		c.burst = 0
	} else {
		c.burst++
	}
	return c.burst >= burstLength
}

// write writes p ahead of the queue. wmu is held, and released meanwhile.
func (c *flowConn) write(p []byte) error {
	c.writing = true
	c.wmu.Unlock()
	n, err := c.Conn.Write(p)
	c.out.Add(int64(n))
	c.wmu.Lock()
	c.writing = false
	c.lastWrite = time.Now()
	if err != nil {
		c.werr = err
	}
	c.wcond.Broadcast()
	return err
}

// queuedBytes is the number of bytes that wait for the writer. wmu is held.
func (c *flowConn) queuedBytes() int {
	if c.queue == nil {
		return 0
	}
	return len(c.queue.b)
}

// enqueue queues p for the writer. wmu is held.
func (c *flowConn) enqueue(p []byte) {
	if c.queue == nil {
		c.queue, _ = batches.Get().(*batch)
	}
	c.queue.b = append(c.queue.b, p...)
	if !c.writerRunning {
		c.writerRunning = true
		go c.runWriter()
	}
}

// setWindow sends the peer another window for every stream. It does not block.
func (c *flowConn) setWindow(window int) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wantedWindow = window
	c.inject()
}

// window is what the peer may have in flight on a stream.
func (c *flowConn) window() int {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.wantedWindow
}

// inject queues the wanted window where a frame may begin. wmu is held.
func (c *flowConn) inject() {
	// HTTP/2's own SETTINGS go first, and frames are never cut in two.
	if c.wantedWindow == c.sentWindow || !c.framer.atBoundary() || c.closed {
		return
	}
	c.sentWindow = c.wantedWindow
	c.injected.Add(1)
	frame := [frameHeader + 6]byte{2: 6, 3: byte(http2.FrameSettings)}
	binary.BigEndian.PutUint16(frame[frameHeader:], uint16(http2.SettingInitialWindowSize))
	binary.BigEndian.PutUint32(frame[frameHeader+2:], uint32(c.wantedWindow)) //nolint:gosec // at most maxWindow
	c.enqueue(frame[:])
}

// runWriter writes what is queued until an error, or until all is written: a
// session at rest has no writer.
func (c *flowConn) runWriter() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for c.werr == nil && c.queue != nil {
		if c.writing {
			c.wcond.Wait()
			continue
		}
		out := c.queue
		c.queue = nil
		_ = c.write(out.b) // kept in werr
		out.b = out.b[:0]
		batches.Put(out)
	}
	c.writerRunning = false
	c.wcond.Broadcast()
}

// closeWrites refuses further writes; what is queued is still written.
func (c *flowConn) closeWrites() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.closed = true
	c.wcond.Broadcast()
}

// Close writes what is queued and closes TLS in order. A peer that does not read has
// closeGrace.
func (c *flowConn) Close() error {
	_ = c.SetWriteDeadline(time.Now().Add(closeGrace))
	c.closeWrites()
	c.flush()
	return c.Conn.Close()
}

// flush waits until what was accepted is written, or cannot be.
func (c *flowConn) flush() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for c.writerRunning || c.writing {
		c.wcond.Wait()
	}
}

// abort closes the byte stream without a closing alert of TLS, which would wait for a
// peer that may not read.
func (c *flowConn) abort() {
	c.closeWrites()
	_ = c.raw.Close()
}
