// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"io"
	"os"
	"sync"
	"time"
)

// streamBuffer is what a raw stream holds of one direction, in bytes. The
// window of HTTP/2 lies behind it; more here would only be more memory.
const streamBuffer = 16 << 10

// buffers lends the bytes of buffers that are not empty, so that an idle stream
// holds none.
var buffers = sync.Pool{New: func() any { return new([streamBuffer]byte) }}

// lend borrows memory from buffers.
func lend() *[streamBuffer]byte {
	b, _ := buffers.Get().(*[streamBuffer]byte)
	return b
}

// giveBack returns what was lent; nil is nothing.
func giveBack(b *[streamBuffer]byte) {
	if b != nil {
		buffers.Put(b)
	}
}

// buffer is one direction of a raw stream: a bounded queue of bytes between one
// writer and one reader, either of which may be interrupted by a deadline and
// go on afterwards. HTTP/2 itself can do that for neither: a read deadline that
// fired there cannot be cleared, and net/http interrupts reads by deadline
// before it hijacks a connection.
type buffer struct {
	mu        sync.Mutex
	changed   sync.Cond
	data      *[streamBuffer]byte // lent while from < to
	from, to  int
	writeErr  error // after the last byte: io.EOF when the writer ended cleanly
	readErr   error // of the reader's side: what writers get
	rdeadline deadline
	wdeadline deadline
}

func newBuffer() *buffer {
	b := &buffer{}
	b.changed.L = &b.mu
	return b
}

// deadline wakes the waiting side of a buffer when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set replaces the deadline; the zero time clears it. The buffer's mu is held.
func (d *deadline) set(b *buffer, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed.Broadcast()
		})
	}
	b.changed.Broadcast()
}

// Read waits for bytes. They come before the writer's end, and neither comes
// after this side was closed.
func (b *buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.readErr != nil:
			return 0, b.readErr
		case b.rdeadline.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case b.from < b.to:
			return b.take(p), nil
		case b.writeErr != nil:
			return 0, b.writeErr
		}
		b.changed.Wait()
	}
}

// await waits until Read has something to say, for readers that borrow memory
// only then.
func (b *buffer) await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.readErr == nil && b.writeErr == nil && b.from == b.to && !b.rdeadline.passed() {
		b.changed.Wait()
	}
}

// take moves bytes to p. mu is held.
func (b *buffer) take(p []byte) int {
	n := copy(p, b.data[b.from:b.to])
	b.from += n
	if b.from == b.to {
		b.drop()
	}
	b.changed.Broadcast()
	return n
}

// drop gives the memory back. mu is held.
func (b *buffer) drop() {
	giveBack(b.data)
	b.data, b.from, b.to = nil, 0, 0
}

// Write waits for room. What was accepted is counted even with an error.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for {
		switch {
		case b.readErr != nil:
			return n, b.readErr
		case b.writeErr != nil:
			return n, io.ErrClosedPipe
		case b.wdeadline.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		case b.room():
			n += b.put(p[n:])
		default:
			b.changed.Wait()
		}
	}
}

func (b *buffer) room() bool { return b.data == nil || b.to < streamBuffer }

// put takes bytes of p. mu is held and there is room.
func (b *buffer) put(p []byte) int {
	if b.data == nil {
		b.data = lend()
	}
	n := copy(b.data[b.to:], p)
	b.to += n
	b.changed.Broadcast()
	return n
}

// finish ends the writer's side; the first end stays. Bytes already written are
// still read, then err: io.EOF for a clean end.
func (b *buffer) finish(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeErr == nil {
		b.writeErr = err
	}
	b.wdeadline.set(b, time.Time{})
}

// refuse ends the reader's side; the first end stays. Bytes not read are
// dropped, and readers and writers get err.
func (b *buffer) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readErr == nil {
		b.readErr = err
	}
	b.drop()
	b.rdeadline.set(b, time.Time{})
	b.wdeadline.set(b, time.Time{})
}

func (b *buffer) setReadDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rdeadline.set(b, t)
}

func (b *buffer) setWriteDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wdeadline.set(b, t)
}
