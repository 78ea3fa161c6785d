// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	defaultLimit = 256 << 10
	defaultChunk = 32 << 10
)

// Config says what a Conn is made of.
type Config struct {
	// Local and Remote are the addresses that the Conn reports. Required.
	Local, Remote net.Addr
	// Limit bounds the bytes that wait in each direction. 256 KiB if zero.
	Limit int
	// Chunk bounds the bytes of one message to the transport. 32 KiB if zero.
	Chunk int
}

// Default returns the configuration with its zero values replaced.
func (c Config) Default() Config {
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.Chunk == 0 {
		c.Chunk = defaultChunk
	}
	return c
}

// Validate returns an error when the configuration cannot be used.
func (c Config) Validate() error {
	if c.Local == nil || c.Remote == nil {
		return fmt.Errorf("stream: addresses are required")
	}
	if c.Limit < 0 || c.Chunk < 0 {
		return fmt.Errorf("stream: limit %d and chunk %d must not be negative", c.Limit, c.Chunk)
	}
	return nil
}

// Conn is a net.Conn made of messages. Its user calls the methods of net.Conn;
// its transport calls Deliver, Next and Fail.
type Conn struct {
	config                      Config
	in, out                     *queue
	readDeadline, writeDeadline *deadline

	// writing keeps the chunks of one Write together.
	writing sync.Mutex

	closeOnce sync.Once
	done      chan struct{}
}

var _ net.Conn = (*Conn)(nil)

// New returns a Conn.
func New(config Config) (*Conn, error) {
	config = config.Default()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Conn{
		config:        config,
		in:            newQueue(config.Limit),
		out:           newQueue(config.Limit),
		readDeadline:  newDeadline(),
		writeDeadline: newDeadline(),
		done:          make(chan struct{}),
	}, nil
}

// Read returns bytes that were delivered. After Fail it returns what is left,
// then Fail's error; after Close net.ErrClosed.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return c.in.read(p, c.readDeadline.wait())
}

// Write copies p for the transport and waits while the queue is full. It
// returns before the bytes have left.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	expired := c.writeDeadline.wait()
	written := 0
	for chunk := range slices.Chunk(p, c.config.Chunk) {
		if err := c.out.push(slices.Clone(chunk), expired); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}

// Close ends both directions. What was written before is still given to the
// transport; what was delivered and not read is dropped.
func (c *Conn) Close() error {
	c.in.end(net.ErrClosed, false)
	c.out.end(net.ErrClosed, true)
	c.finish()
	return nil
}

// LocalAddr returns the configured local address.
func (c *Conn) LocalAddr() net.Addr { return c.config.Local }

// RemoteAddr returns the configured remote address.
func (c *Conn) RemoteAddr() net.Addr { return c.config.Remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline sets when pending and future reads fail with
// os.ErrDeadlineExceeded. The zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

// SetWriteDeadline sets when pending and future writes fail with
// os.ErrDeadlineExceeded. The zero time means never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}

// Deliver gives bytes that arrived to the reader. The Conn owns them from then
// on. It waits no longer than patience for a reader who is behind, and then
// returns os.ErrDeadlineExceeded; after Close or Fail it returns their error.
func (c *Conn) Deliver(p []byte, patience time.Duration) error {
	if len(p) == 0 {
		return nil
	}
	// Only a reader who is behind costs a timer.
	if pushed, err := c.in.tryPush(p); pushed || err != nil {
		return err
	}
	limit := newDeadline()
	limit.set(time.Now().Add(patience))
	defer limit.set(time.Time{})
	return c.in.push(p, limit.wait())
}

// Next returns the next bytes that were written, at most Chunk at once, and
// waits for them. After Close it returns what is left and then io.EOF, after
// Fail io.EOF.
func (c *Conn) Next() ([]byte, error) {
	chunk, err := c.out.next(c.config.Chunk)
	if err != nil {
		return nil, io.EOF
	}
	return chunk, nil
}

// Fail ends both directions because of the far end: reads return what was
// delivered and then err, writes return err at once.
func (c *Conn) Fail(err error) {
	// The reader last: who read the error finds the rest ended.
	c.out.end(err, false)
	c.finish()
	c.in.end(err, true)
}

// FailWrites ends the outgoing direction alone: the transport takes no more,
// and may still deliver. Writes return err, Next returns io.EOF.
func (c *Conn) FailWrites(err error) {
	c.out.end(err, false)
}

// Done is closed after Close or Fail.
func (c *Conn) Done() <-chan struct{} { return c.done }

func (c *Conn) finish() {
	c.closeOnce.Do(func() { close(c.done) })
}
