// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bufpool lends buffers of one size, and copies streams with them.
package bufpool

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Size is that of a buffer, in bytes: a TLS record of 16 KiB with its header and tag.
// Most answers are smaller, and a session carries many at once.
const Size = 16<<10 + 256

// idleSize is the memory with which Copy waits, in bytes.
const idleSize = 512

// ErrWrite is wrapped by the errors of Copy that its destination returned.
var ErrWrite = errors.New("receiver is gone")

// Buffer is a buffer of the pool.
type Buffer [Size]byte

var pool = sync.Pool{New: func() any { return new(Buffer) }}

// Get borrows a buffer.
func Get() *Buffer {
	b, _ := pool.Get().(*Buffer)
	return b
}

// Put gives a buffer back; nil is none.
func Put(b *Buffer) {
	if b != nil {
		pool.Put(b)
	}
}

// Copy copies until src returns io.EOF. Errors of dst wrap ErrWrite. Thousands of streams
// wait for their next byte at once, so each waits with little memory, and borrows a buffer
// while there is more to read.
func Copy(dst io.Writer, src io.Reader) error {
	idle := make([]byte, idleSize)
	var buffer *Buffer
	defer func() { Put(buffer) }()
	for chunk := idle; ; {
		n, err := src.Read(chunk)
		if n > 0 {
			if _, werr := dst.Write(chunk[:n]); werr != nil {
				return fmt.Errorf("%w: %w", ErrWrite, werr)
			}
		}
		// Compared, not unwrapped: an error that wraps io.EOF is not a clean end.
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case n < idleSize:
			Put(buffer)
			buffer, chunk = nil, idle
		case buffer == nil:
			buffer = Get()
			chunk = buffer[:]
		}
	}
}

// Proxy is the pool as an httputil.BufferPool.
type Proxy struct{}

// Get borrows a buffer.
func (Proxy) Get() []byte { return Get()[:] }

// Put gives a buffer back.
func (Proxy) Put(b []byte) { Put((*Buffer)(b)) }
