// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package httpproxy

import "sync"

// bufferSize is the memory that one copy may hold. Most answers are smaller,
// and a session carries many at once.
const bufferSize = 16 << 10

// idleSize is the memory with which a direction of a stream waits.
const idleSize = 512

// chunks lends memory to the streams that are not idle.
var chunks = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// lend borrows memory from chunks.
func lend() *[bufferSize]byte {
	chunk, _ := chunks.Get().(*[bufferSize]byte)
	return chunk
}

// giveBack returns what was lent; nil is nothing.
func giveBack(chunk *[bufferSize]byte) {
	if chunk != nil {
		chunks.Put(chunk)
	}
}

// Buffers is a pool of copy buffers, an httputil.BufferPool.
type Buffers struct{ pool sync.Pool }

// NewBuffers makes an empty pool.
func NewBuffers() *Buffers {
	return &Buffers{pool: sync.Pool{New: func() any { return make([]byte, bufferSize) }}}
}

// Get returns a buffer.
func (b *Buffers) Get() []byte { return b.pool.Get().([]byte) } //nolint:forcetypeassert // nothing else is put in

// Put takes a buffer back.
func (b *Buffers) Put(buf []byte) { b.pool.Put(buf) } //nolint:staticcheck // the signature of BufferPool costs this allocation.
