// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"

	"github.com/spokelet/spokelet/internal/httpproxy"
)

// pingFrame is the size of a PING of SPDY/3.1, in bytes: its header and its id.
const pingFrame = spdyHeader + 4

// Client is how the client of a followed server is heard and ended: kept is called when it
// is left to end the stream. That of port-forward is told of each end, and closes upon
// none of its streams. The client must have said nothing before, and be one that can be
// told of the end of one direction.
func (f *Follower) Client(conn net.Conn, kept func()) net.Conn {
	if f.forward {
		return conn
	}
	return &client{Conn: conn, server: f, kept: kept}
}

// client is the client's end of a command's SPDY: the hub's API server's. It
// keeps two habits of clients from destroying the end of what a command says. Both
// come of TCP: what is sent to a connection that was closed resets it, and a reset
// destroys what is still on its way.
//
// Clients ping every five seconds. Kubelets and API servers close a connection when
// the command has ended, with its last megabytes still in the buffers of the ways
// between; a ping that gets there then destroys them (kubernetes/kubernetes,
// UpgradeAwareHandler: it closes both ends as soon as it cannot write to one). So
// while there is output, and once the end is told, pings are answered here. A stream
// that is idle has its pings answered by the cluster: they are what keeps it alive in
// proxies on the way.
//
// Clients take the end of a connection for the end of all its streams, and drop what
// they have not read. So a client that was sent everything is told of no end, and
// closes the connection itself when it has read it (httpproxy.ErrKept).
type client struct {
	net.Conn
	server *Follower
	kept   func() // is called when the client is left to end the stream

	// rest is how much is passed on unread: what is left of a frame, and all that
	// follows one which is not known here. In bytes.
	rest  int64
	begun []byte // the beginning of a frame of which more is needed
}

// Read implements io.Reader. It needs room for more than a ping.
func (c *client) Read(p []byte) (int, error) {
	if len(p) <= pingFrame {
		return 0, io.ErrShortBuffer
	}
	for {
		begun := copy(p, c.begun)
		n, err := c.Conn.Read(p[begun:])
		if n == 0 && err != nil && err != io.EOF { //nolint:errorlint // an error that wraps io.EOF is no end in order
			return 0, err // of a deadline, behind which others may read on
		}
		c.begun = c.begun[:0]
		passed := c.pass(p[:begun+n])
		if err != nil {
			passed += copy(p[passed:], c.begun)
			c.begun = nil
			return passed, err
		}
		if passed > 0 {
			return passed, nil
		}
	}
}

// pass takes the pings out of b that are answered here, and keeps the beginning of
// a frame. It returns how much is left.
func (c *client) pass(b []byte) int {
	out := 0
	for at := 0; at < len(b); {
		if c.rest == 0 {
			ping, ok := c.frame(b[at:])
			if !ok {
				c.begun = append(c.begun, b[at:]...)
				break
			}
			if ping && c.server.answer(c.Conn, b[at:at+pingFrame]) {
				at += pingFrame
				c.rest = 0
				continue
			}
		}
		n := int(min(int64(len(b)-at), c.rest))
		c.rest -= int64(n)
		if out != at {
			copy(b[out:], b[at:at+n])
		}
		out, at = out+n, at+n
	}
	return out
}

// frame reads the header of the frame with which b begins, and says whether it is a
// ping of the client's. Not ok: more is needed to know.
func (c *client) frame(b []byte) (ping, ok bool) {
	if len(b) < spdyHeader {
		return false, false
	}
	h := headerOf(b)
	switch {
	case h.foreign:
		c.rest = math.MaxInt64
		return false, true
	case h.control && h.kind == spdyPing && h.size == pingFrame-spdyHeader:
		if len(b) < pingFrame {
			return false, false
		}
		ping = b[pingFrame-1]&1 == 1 // even ones answer a server's
	}
	c.rest = int64(spdyHeader + h.size)
	return ping, true
}

// answer sends a ping back to the client, unless the server is to answer it.
func (f *Follower) answer(client io.Writer, ping []byte) bool {
	output := f.output.Swap(false)
	if !output && !f.done.Load() {
		return false
	}
	put := f.between.put(client, ping)
	if !put && output {
		f.output.Store(true)
	}
	return put
}

// maxPut bounds what waits to be put into a gap, in bytes. Client-go has no second
// ping before the first is answered.
const maxPut = 16 * pingFrame

// gap is where frames can be put among those of a follower: behind what was passed
// on, while that ends with a frame. Writes to a connection are whole.
type gap struct {
	mu      sync.Mutex
	within  bool          // what is passed on next, or was, does not end with a frame
	waiting []byte        // to be put
	writing chan struct{} // closed when all that waits has been written; nil is nothing
}

// put writes a frame to the client, and does not wait for it: a client that reads
// nothing is still heard. Beyond maxPut frames are dropped. It returns false when
// the frame cannot be put anywhere.
func (g *gap) put(client io.Writer, frame []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.within {
		return false
	}
	if len(g.waiting)+len(frame) <= maxPut {
		g.waiting = append(g.waiting, frame...)
	}
	if g.writing == nil {
		g.writing = make(chan struct{})
		go g.write(client)
	}
	return true
}

// write writes what waits.
func (g *gap) write(client io.Writer) {
	for {
		g.mu.Lock()
		next := g.waiting
		g.waiting = nil
		if len(next) == 0 {
			close(g.writing)
			g.writing = nil
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		_, _ = client.Write(next) // a client that is gone is read next
	}
}

// split is told whether what is passed on next may end within a frame, or still
// does, before that is written. It waits for what is being put.
func (g *gap) split(within bool) {
	g.mu.Lock()
	g.within = within
	g.mu.Unlock()
	if within {
		g.settle()
	}
}

// settle waits until what was put has been written.
func (g *gap) settle() {
	g.mu.Lock()
	writing := g.writing
	g.mu.Unlock()
	if writing != nil {
		<-writing
	}
}

// CloseWrite tells the client of the end, unless it ends the connection itself.
func (c *client) CloseWrite() error {
	if c.server.complete() {
		c.kept()
		return httpproxy.ErrKept
	}
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// NetConn is the client's connection, which may be reset.
func (c *client) NetConn() net.Conn { return c.Conn }
