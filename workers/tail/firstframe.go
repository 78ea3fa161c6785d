// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/http"
)

const (
	// textFrame is the first byte of a frame that is a whole text message: FIN and opcode 1.
	textFrame = 0x81
	// maxShort is the longest payload whose length is in the second byte itself. The byte is
	// above 127 if the payload is masked.
	maxShort = 125
	// headSize is how many bytes decide what the first frame is.
	headSize = 2
)

// A firstFrameWriter has a hijacked connection leave out an unmasked first message.
//
// wrangler's first message, {"debug":false}, is not masked, against section 5.1 of RFC 6455.
// The library closes such a connection, and wrangler would make a new tail for ever.
type firstFrameWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker. What the server had read already is read from the
// connection again.
func (w *firstFrameWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := rw.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	wrapped := &firstFrame{Conn: conn, early: bytes.Clone(early)}
	return wrapped, bufio.NewReadWriter(bufio.NewReader(wrapped), rw.Writer), nil
}

// A firstFrame is a connection whose first frame is left out if it is a whole text message of
// at most 125 bytes that is not masked. All else is read as it comes: a second such frame is
// the library's error. Read is called by one goroutine at a time.
type firstFrame struct {
	net.Conn

	early   []byte // was read from Conn and is not returned yet
	skip    int    // bytes of the first frame that are still to be left out
	decided bool
}

func (c *firstFrame) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !c.decided {
		if err := c.decide(); err != nil && len(c.early) == 0 {
			return 0, err
		}
	}
	for c.skip > 0 {
		n, err := c.read(p[:min(len(p), c.skip)])
		c.skip -= n
		if err != nil {
			return 0, err
		}
	}
	return c.read(p)
}

// decide reads the head of the first frame, or what there is of it. The error, if any, comes
// again with the next read.
func (c *firstFrame) decide() error {
	c.decided = true
	var buffer [headSize]byte
	for len(c.early) < headSize {
		n, err := c.Conn.Read(buffer[:headSize-len(c.early)])
		c.early = append(c.early, buffer[:n]...)
		if err != nil {
			return err
		}
	}
	if c.early[0] == textFrame && c.early[1] <= maxShort {
		c.skip = headSize + int(c.early[1])
	}
	return nil
}

func (c *firstFrame) read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	c.early = c.early[n:]
	return n, nil
}
