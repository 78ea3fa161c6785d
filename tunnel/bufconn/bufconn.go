// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bufconn makes a net.Conn of a transport that has no deadlines, or none that
// can be set again after they have passed: messages of gRPC, streams of HTTP/2.
//
// Each direction is a Buffer. What arrives waits for its reader, what is written waits
// for the transport. Empty buffers hold no memory.
package bufconn

import (
	"net"
	"time"
)

// Addr names an end of a Conn.
type Addr string

// Network returns "spokelet".
func (Addr) Network() string { return "spokelet" }

// String returns the name.
func (a Addr) String() string { return string(a) }

// Conn is a net.Conn without Close: what that means is for the transport to say.
type Conn struct {
	// In is written by the transport, and Out read.
	In, Out *Buffer
	// Local and Remote are the addresses that the Conn reports.
	Local, Remote Addr
}

// New returns a Conn that holds as many bytes in each direction as fit in a number of
// buffers of package bufpool.
func New(local, remote Addr, buffers int) Conn {
	return Conn{In: NewBuffer(buffers), Out: NewBuffer(buffers), Local: local, Remote: remote}
}

// Read returns bytes that have arrived.
func (c *Conn) Read(p []byte) (int, error) { return c.In.Read(p) }

// Write copies p for the transport.
func (c *Conn) Write(p []byte) (int, error) { return c.Out.Write(p) }

// LocalAddr returns Local.
func (c *Conn) LocalAddr() net.Addr { return c.Local }

// RemoteAddr returns Remote.
func (c *Conn) RemoteAddr() net.Addr { return c.Remote }

// SetReadDeadline sets when pending and future reads fail with
// os.ErrDeadlineExceeded. The zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.In.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline sets when pending and future writes fail with
// os.ErrDeadlineExceeded. The zero time means never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.Out.SetWriteDeadline(t)
	return nil
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.In.SetReadDeadline(t)
	c.Out.SetWriteDeadline(t)
	return nil
}
