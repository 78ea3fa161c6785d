// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	frameHeader   = 9
	clientPreface = len(http2.ClientPreface)
	// flowBuffer is what a session reads ahead, in bytes: enough for several
	// small frames at once. Every session holds it for good; the rest of a large
	// frame is read past it.
	flowBuffer = 4 << 10
)

// flowConn lies between a session's TLS and its HTTP/2. It counts what passes,
// and it changes the window of the streams while the session lives, which Go's
// HTTP/2 cannot: HTTP/2 here announces the largest window and enforces it,
// and flowConn sends the peer smaller ones in SETTINGS frames of its own, whose
// acknowledgements it consumes. So the peer never sends more than HTTP/2 here
// expects. flowConn also gathers small writes; see Write.
type flowConn struct {
	net.Conn          // TLS
	raw      net.Conn // under TLS
	in, out  atomic.Int64
	injected atomic.Int64 // SETTINGS of ours that are not acknowledged yet

	r            *bufio.Reader // this and the next two belong to the one reader
	frameLeft    int           // bytes of the current frame still to be read
	firstAckSeen bool          // the acknowledgement that HTTP/2 waits for has passed

	wmu           sync.Mutex
	wcond         sync.Cond     // something below has changed
	queue         *batch        // to be written by the writer; nil when empty
	framer        framePosition // at the end of queue
	writing       bool          // somebody is writing, and wmu is free
	writerRunning bool          // the writer runs
	lastWrite     time.Time     // when the last write ended
	burst         int           // writes in a row that followed each other closely
	sentWindow    int           // window that the peer was told last
	wantedWindow  int           // window that the peer is to be told
	closed        bool          // no more writes
	werr          error         // of the writer, and the end of it

	bulkMu    sync.Mutex
	bulkBytes map[uint32]int // bytes in large frames by stream since the last count
}

// newFlowConn wraps the TLS connection, over raw, of the HTTP/2 client (hub) or
// server (agent). Window is the one that HTTP/2 announces first.
func newFlowConn(conn, raw net.Conn, client bool, window int) *flowConn {
	c := &flowConn{
		Conn:         conn,
		raw:          raw,
		r:            bufio.NewReaderSize(conn, flowBuffer),
		sentWindow:   window,
		wantedWindow: window,
		bulkBytes:    map[uint32]int{},
	}
	c.wcond.L = &c.wmu
	if client {
		c.framer.skip = clientPreface
	} else {
		c.frameLeft = clientPreface
	}
	return c
}

func (c *flowConn) traffic() traffic {
	return traffic{in: c.in.Load(), out: c.out.Load()}
}

// Read returns what has arrived, without the acknowledgements that are not for HTTP/2.
// It waits for the first byte only.
func (c *flowConn) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		ready, err := c.frameReady(n == 0)
		if err != nil || !ready {
			return n, err
		}
		m, err := c.r.Read(p[n:min(len(p), n+c.frameLeft)])
		n += m
		c.frameLeft -= m
		c.in.Add(int64(m))
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// frameReady finds the current frame and reports whether a read within it may follow.
// With wait that read may block.
func (c *flowConn) frameReady(wait bool) (bool, error) {
	for c.frameLeft == 0 {
		if !wait && c.r.Buffered() < frameHeader {
			return false, nil
		}
		if err := c.nextFrame(); err != nil {
			return false, err
		}
	}
	return wait || c.r.Buffered() > 0, nil
}

// nextFrame reads a header, and leaves it to be read again unless its frame is
// an acknowledgement that is not for HTTP/2.
func (c *flowConn) nextFrame() error {
	h, err := c.r.Peek(frameHeader)
	if err != nil {
		if len(h) > 0 && errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	f := parseFrameHeader(h)
	if f.acknowledges() && c.firstAckSeen && c.injected.Load() > 0 {
		c.injected.Add(-1)
		_, err := c.r.Discard(frameHeader)
		return err
	}
	c.observeFrame(f)
	c.frameLeft = frameHeader + f.length
	return nil
}

// observeFrame records what matters of a frame that HTTP/2 is about to read.
func (c *flowConn) observeFrame(f frameInfo) {
	switch {
	case f.acknowledges():
		c.firstAckSeen = true
	case f.kind == http2.FrameData && f.length >= slowWindow:
		c.bulkMu.Lock()
		c.bulkBytes[f.stream] += f.length
		c.bulkMu.Unlock()
	}
}

// bulkStreams counts the streams that received at least a window's worth in
// large frames since the last call. Where none did, those that received any are
// one: a slow link carries no window's worth between two pings.
func (c *flowConn) bulkStreams(window int) int {
	c.bulkMu.Lock()
	defer c.bulkMu.Unlock()
	n := 0
	for _, bytes := range c.bulkBytes {
		if bytes >= window {
			n++
		}
	}
	if len(c.bulkBytes) > 0 {
		n = max(n, 1)
	}
	clear(c.bulkBytes)
	return n
}

type frameInfo struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// acknowledges reports whether the frame acknowledges SETTINGS. One with content
// is malformed, and HTTP/2's to refuse.
func (f frameInfo) acknowledges() bool {
	return f.kind == http2.FrameSettings && f.flags.Has(http2.FlagSettingsAck) && f.length == 0
}

// parseFrameHeader reads the nine bytes of RFC 9113 section 4.1.
func parseFrameHeader(h []byte) frameInfo {
	return frameInfo{
		length: int(h[0])<<16 | int(h[1])<<8 | int(h[2]),
		kind:   http2.FrameType(h[3]),
		flags:  http2.Flags(h[4]),
		stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31),
	}
}

// framePosition follows frames through a byte stream.
type framePosition struct {
	skip      int // bytes up to the next header
	header    [frameHeader]byte
	have      int  // bytes of header seen
	frameSeen bool // a whole frame has passed
}

// advance moves over p.
func (f *framePosition) advance(p []byte) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have == frameHeader {
			f.skip = parseFrameHeader(f.header[:]).length
			f.have = 0
			f.frameSeen = true
		}
	}
}

// atBoundary reports whether the next byte begins a frame and is not the first.
func (f *framePosition) atBoundary() bool { return f.frameSeen && f.skip == 0 && f.have == 0 }

// traffic counts bytes above TLS.
type traffic struct{ in, out int64 }

func (t traffic) plus(o traffic) traffic { return traffic{t.in + o.in, t.out + o.out} }
