// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is read of SPDY/3.1: the header of each frame, and in the control frames
// that can end a stream the stream's id.
const (
	spdyHeader  = 8
	spdyVersion = 3
	spdyFin     = 0x01
	spdyControl = 0x80
	spdyMaxData = 1<<24 - 1

	spdySynReply = 2
	spdyReset    = 3
	spdyPing     = 6
	spdyGoAway   = 7

	spdyInternalError = 2 // of GOAWAY

	// spdyMaxControl is the largest control frame that is held until it is whole;
	// servers of exec send some dozens of bytes.
	spdyMaxControl = 4 << 10

	// errorStreamID is the stream on which a command's end is told: every client
	// opens it first.
	errorStreamID = 1

	// maxStreams bounds those of a command that are followed; there are five kinds.
	maxStreams = 8
)

// maxFarewell bounds what is told of a cut.
const maxFarewell = 1 << 10

// Follower reads what a server of exec, attach or port-forward sends, follows
// where frames begin and end, and passes them on. When the way to the server of a
// command is cut, or ends before the command's end was told, it says so on the
// error stream: there clients take an end without a word for success.
//
// Port-forward has no such stream, and its end is a failure. But where the client
// speaks WebSocket, the hub's API server closes its connection no sooner than it
// says something next: Close waits for a lock that a Read holds
// (k8s.io/apiserver/pkg/util/proxy/streamtunnel.go, v1.31 to v1.37). A client with a
// ping that was lost to the cut says nothing for ever. So it gets what a server
// sends that fails, a GOAWAY, and closes its connection itself.
//
// What it gives to Read is always whole frames: DATA that has come in part is
// passed on as a DATA frame of that part.
type Follower struct {
	src io.Reader
	// status says that the protocol tells every end by a metav1.Status (v4 and
	// later); before, only failures were told, and as text.
	status bool
	// forward: what is followed is port-forward. left: its server has said GOAWAY.
	forward, left bool

	held []byte // to be passed on before more is read
	data dataFrame
	told bool // something was said on the error stream
	over bool // the error stream has ended
	// open are the streams that the server has not ended. Of more than maxStreams
	// none is known: many.
	open []uint32
	many bool
	// plain: what is read is not what is known here. It is passed on as it is, and
	// its end too.
	plain bool
	err   error // what Read returns once held is passed on

	// Others ask whether nothing can be said on the error stream any more, whether
	// there was DATA since they last asked, and for where a frame ends.
	done, output atomic.Bool
	between      gap
}

// header is that of a frame.
type header struct {
	control bool
	foreign bool   // a control frame of another protocol or version
	kind    uint16 // of a control frame
	stream  uint32 // of DATA
	flags   byte
	size    int // of what follows, in bytes
}

// headerOf reads the first spdyHeader bytes of a frame.
func headerOf(b []byte) header {
	h := header{control: b[0]&spdyControl != 0, flags: b[4], size: int(binary.BigEndian.Uint32(b[4:]) & spdyMaxData)}
	if !h.control {
		h.stream = binary.BigEndian.Uint32(b)
		return h
	}
	h.foreign = b[0] != spdyControl || b[1] != spdyVersion
	h.kind = binary.BigEndian.Uint16(b[2:])
	return h
}

// dataFrame is a DATA frame of which a part is still to come.
type dataFrame struct {
	stream uint32
	flags  byte
	left   int
}

// streamProtocolHeader names what is spoken on the streams of a connection.
const streamProtocolHeader = "X-Stream-Protocol-Version"

// The protocols of a server, by how they end in streamProtocolHeader.
const (
	commandProtocol = "channel.k8s.io"
	forwardProtocol = "portforward.k8s.io"
)

// Follow follows a server of commands or of port-forward, as its answer says which it is.
// It returns nil for any other, of whose streams nothing is known.
func Follow(src io.Reader, answer http.Header) *Follower {
	switch protocol := answer.Get(streamProtocolHeader); {
	case strings.HasSuffix(protocol, commandProtocol):
		return FollowCommand(src, answer)
	case protocol == forwardProtocol:
		return FollowForward(src, answer)
	default:
		return nil
	}
}

// FollowCommand follows a server of exec or attach that has answered with a header.
func FollowCommand(src io.Reader, answer http.Header) *Follower {
	switch answer.Get(streamProtocolHeader) {
	case "", "channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io":
		return &Follower{src: src}
	default:
		return &Follower{src: src, status: true}
	}
}

// FollowForward follows a server of port-forward.
func FollowForward(src io.Reader, _ http.Header) *Follower {
	return &Follower{src: src, forward: true}
}

// Read implements io.Reader. It needs room for more than the header of a frame.
func (f *Follower) Read(p []byte) (int, error) {
	if len(p) <= spdyHeader {
		return 0, io.ErrShortBuffer
	}
	f.between.split(f.plain || len(f.held) > 0)
	for {
		switch {
		case len(f.held) > 0:
			n := copy(p, f.held)
			f.held = f.held[n:]
			if f.plain || len(f.held) > 0 {
				f.between.split(true)
			}
			return n, nil
		case f.err != nil:
			return 0, f.err
		case f.plain:
			return f.src.Read(p)
		case f.data.left > 0:
			if n := f.readData(p); n > 0 {
				return n, nil
			}
		default:
			f.held = nil
			f.readHeader()
		}
	}
}

// readData puts the next part of a DATA frame into p, as a frame.
func (f *Follower) readData(p []byte) int {
	n, err := f.src.Read(p[spdyHeader:min(len(p), spdyHeader+f.data.left)])
	f.data.left -= n
	f.output.Store(true)
	if err != nil {
		if err == io.EOF && f.data.left > 0 {
			err = io.ErrUnexpectedEOF
		}
		f.end(err)
	}
	if n == 0 {
		return 0
	}
	part := dataFrame{stream: f.data.stream, left: n}
	if f.data.left == 0 {
		part.flags = f.data.flags
	}
	part.put(p)
	return spdyHeader + n
}

// put writes the header of the frame d.
func (d dataFrame) put(p []byte) {
	binary.BigEndian.PutUint32(p, d.stream)
	binary.BigEndian.PutUint32(p[4:], uint32(d.flags)<<24|uint32(d.left)) //nolint:gosec // 24 bits
}

// readHeader reads the header of the next frame, and what else of it is held.
func (f *Follower) readHeader() {
	var head [spdyHeader]byte
	if _, err := io.ReadFull(f.src, head[:]); err != nil {
		f.end(err)
		return
	}
	h := headerOf(head[:])
	if h.control {
		f.readControl(head[:], h)
		return
	}
	f.data = dataFrame{stream: h.stream, flags: h.flags, left: h.size}
	if h.stream == errorStreamID {
		f.told = f.told || h.size > 0
	}
	if h.flags&spdyFin != 0 {
		f.ended(h.stream)
	}
	if h.size == 0 {
		f.held = head[:]
	}
}

// readControl reads a control frame behind its header.
func (f *Follower) readControl(head []byte, h header) {
	if h.foreign || h.size > spdyMaxControl {
		f.plain, f.held = true, head
		return
	}
	frame := make([]byte, spdyHeader+h.size)
	copy(frame, head)
	if _, err := io.ReadFull(f.src, frame[spdyHeader:]); err != nil {
		f.end(fmt.Errorf("control frame: %w", err))
		return
	}
	f.held = frame
	if h.kind == spdyGoAway { // a client reads no further
		f.left = true
		f.done.Store(true)
	}
	if h.size < 4 {
		return
	}
	switch stream := binary.BigEndian.Uint32(frame[spdyHeader:]) &^ (1 << 31); {
	case h.kind == spdyReset, h.kind == spdySynReply && h.flags&spdyFin != 0:
		f.ended(stream)
	case h.kind == spdySynReply:
		f.opened(stream)
	}
}

// opened is told of a stream that the server has taken.
func (f *Follower) opened(stream uint32) {
	if f.many = f.many || len(f.open) == maxStreams; !f.many {
		f.open = append(f.open, stream)
	}
}

// ended is told of a stream that the server has ended.
func (f *Follower) ended(stream uint32) {
	f.open = slices.DeleteFunc(f.open, func(open uint32) bool { return open == stream })
	if stream == errorStreamID {
		f.over = true
		f.done.Store(true)
	}
}

// complete says that a client has been sent all that there is, and how it ended:
// it needs no end of the connection to know.
func (f *Follower) complete() bool {
	ended := f.over && len(f.open) == 0 && !f.many && f.data.left == 0
	return ended && (f.told || !f.status) && !f.plain && !f.forward
}

// end is called with the error in which the source has ended, io.EOF when it
// was the server that ended it, between frames.
func (f *Follower) end(err error) {
	f.err = err
	clean := err == io.EOF //nolint:errorlint // an error that wraps io.EOF is no end in order
	if f.forward {
		if !f.left {
			f.held = goAwayFrame()
		}
		return
	}
	switch {
	case f.complete():
		f.err = io.EOF // whatever was cut had nothing more to say
		return
	case f.done.Load(), clean && (f.told || !f.status):
		return
	}
	message := "stream ended without the status of the command"
	if !clean {
		message = fmt.Sprintf("stream was cut: %.*s", maxFarewell, err)
	}
	f.held = farewell(message, f.status)
	// What could be said is said; a reset now could destroy it on its way.
	f.err = io.EOF
}

// farewell is the frame that ends the error stream of a stream that was cut.
func farewell(message string, status bool) []byte {
	body := []byte(message)
	if status {
		// Plain strings always marshal.
		body, _ = json.Marshal(metav1.Status{ //nolint:errchkjson // as said
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Message: message, Code: http.StatusInternalServerError,
		})
	}
	frame := make([]byte, spdyHeader, spdyHeader+len(body))
	dataFrame{stream: errorStreamID, flags: spdyFin, left: len(body)}.put(frame)
	return append(frame, body...)
}

// goAwayFrame is the GOAWAY of a server that has failed: no stream of the client's
// was good, INTERNAL_ERROR.
func goAwayFrame() []byte {
	return []byte{spdyControl, spdyVersion, 0, spdyGoAway, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, spdyInternalError}
}
