// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package bufconn

import (
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/bufpool"
)

// Buffer is a bounded queue of bytes between one writer and one reader. Deadlines
// interrupt either, and may be set again afterwards. Use NewBuffer.
type Buffer struct {
	limit int // of blocks

	mu      sync.Mutex
	changed sync.Cond
	// blocks hold the bytes, from the offset from in the first to the offset to in the
	// last. There is none while there are no bytes.
	blocks   []*bufpool.Buffer
	from, to int

	writeErr      error // what readers get after the last byte: io.EOF for a clean end
	readErr       error // what readers and writers get at once
	readDeadline  deadline
	writeDeadline deadline
}

// NewBuffer returns a Buffer of at most limit buffers of package bufpool.
func NewBuffer(limit int) *Buffer {
	b := &Buffer{limit: limit}
	b.changed.L = &b.mu
	return b
}

// Read waits for bytes and copies them to p. They come before the error of CloseWrite,
// and none comes after CloseRead.
func (b *Buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.waitReadable(len(p) == 0); err != nil {
		return 0, err
	}
	n := 0
	for n < len(p) && len(b.blocks) > 0 {
		m := copy(p[n:], b.first())
		n += m
		b.from += m
		if len(b.first()) == 0 {
			bufpool.Put(b.removeFirst())
		}
	}
	b.changed.Broadcast()
	return n, nil
}

// Next is a Read without a copy: it returns bytes that lie in block, which the caller
// puts back into its pool when it is done with them.
func (b *Buffer) Next() (bytes []byte, block *bufpool.Buffer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.waitReadable(false); err != nil {
		return nil, nil, err
	}
	bytes = b.first()
	block = b.removeFirst()
	b.changed.Broadcast()
	return bytes, block, nil
}

// waitReadable waits for bytes, unless none are wanted. mu is held.
func (b *Buffer) waitReadable(none bool) error {
	for {
		switch {
		case b.readErr != nil:
			return b.readErr
		case b.readDeadline.passed():
			return os.ErrDeadlineExceeded
		case none || len(b.blocks) > 0:
			return nil
		case b.writeErr != nil:
			return b.writeErr
		}
		b.changed.Wait()
	}
}

// first is what is left of the first block. mu is held.
func (b *Buffer) first() []byte {
	if len(b.blocks) == 1 {
		return b.blocks[0][b.from:b.to]
	}
	return b.blocks[0][b.from:]
}

func (b *Buffer) removeFirst() *bufpool.Buffer {
	block := b.blocks[0]
	b.blocks = slices.Delete(b.blocks, 0, 1)
	b.from = 0
	return block
}

// Write copies p, and waits while the buffer is full. It returns what it has copied
// even with an error.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write(p, true)
}

// WriteWithin is Write for a writer that waits for a slow reader no longer than
// patience, and then gets os.ErrDeadlineExceeded.
func (b *Buffer) WriteWithin(p []byte, patience time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.write(p, false)
	if n == len(p) || err != nil {
		return err
	}
	// Only a reader who is behind costs a timer.
	b.writeDeadline.set(b, time.Now().Add(patience))
	defer b.writeDeadline.set(b, time.Time{})
	_, err = b.write(p[n:], true)
	return err
}

// write copies p, as far as there is room unless it may wait. mu is held.
func (b *Buffer) write(p []byte, wait bool) (int, error) {
	n := 0
	for {
		switch {
		case b.readErr != nil:
			return n, b.readErr
		case b.writeErr != nil:
			return n, net.ErrClosed
		case b.writeDeadline.passed():
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		case b.hasRoom():
			m := copy(b.blocks[len(b.blocks)-1][b.to:], p[n:])
			n += m
			b.to += m
			b.changed.Broadcast()
		case wait:
			b.changed.Wait()
		default:
			return n, nil
		}
	}
}

// hasRoom makes room in the last block, or in a new one, as the limit allows. mu is held.
func (b *Buffer) hasRoom() bool {
	if len(b.blocks) > 0 && b.to < bufpool.Size {
		return true
	}
	if len(b.blocks) == b.limit {
		return false
	}
	b.blocks = append(b.blocks, bufpool.Get())
	b.to = 0
	return true
}

// CloseWrite ends the writer's side; the first error counts. Readers get the bytes
// already written, then err: io.EOF for a clean end.
func (b *Buffer) CloseWrite(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writeErr == nil {
		b.writeErr = err
	}
	b.writeDeadline.set(b, time.Time{})
}

// CloseRead ends the reader's side; the first error counts. Bytes that were not read
// are dropped, and readers and writers get err.
func (b *Buffer) CloseRead(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readErr == nil {
		b.readErr = err
	}
	for _, block := range b.blocks {
		bufpool.Put(block)
	}
	b.blocks, b.from, b.to = nil, 0, 0
	b.readDeadline.set(b, time.Time{})
	b.writeDeadline.set(b, time.Time{})
}

// SetReadDeadline sets when reads fail; the zero time means never.
func (b *Buffer) SetReadDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readDeadline.set(b, t)
}

// SetWriteDeadline sets when writes fail; the zero time means never.
func (b *Buffer) SetWriteDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writeDeadline.set(b, t)
}

// deadline wakes the waiting side of a Buffer when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// set replaces the deadline; the zero time clears it. The buffer's mu is held.
func (d *deadline) set(b *Buffer, t time.Time) {
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
