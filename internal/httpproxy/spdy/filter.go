// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spdy

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is read of SPDY/3.1: the header of each frame, and in the control frames
// that can end a stream the stream's ID.
const (
	headerSize  = 8
	version     = 3
	flagFin     = 0x01
	controlBit  = 0x80
	maxDataSize = 1<<24 - 1

	typeSynReply = 2
	typeReset    = 3
	typeGoAway   = 7

	goAwayInternalError = 2

	// maxControlFrame is the largest control frame that is held until it is whole;
	// servers of exec send some dozens of bytes.
	maxControlFrame = 4 << 10

	// errorStreamID is the stream on which a command's status is sent: every client
	// opens it first.
	errorStreamID = 1
)

// upgradeProtocol is what clients switch to.
const upgradeProtocol = "SPDY/3.1"

// streamProtocolHeader names what is spoken on the streams of a connection.
const streamProtocolHeader = "X-Stream-Protocol-Version"

// The protocols of a server, by how they end in streamProtocolHeader.
const (
	commandProtocol = "channel.k8s.io"
	forwardProtocol = "portforward.k8s.io"
)

// maxCutMessage bounds the text that reports a cut.
const maxCutMessage = 1 << 10

// Filter returns a reader of what a server of exec, attach or port-forward sends behind
// its answer, and of the frame that reports a cut. It returns server itself if the answer
// is of another protocol, whose frames are not known.
func Filter(answer http.Header, server io.Reader) io.Reader {
	if !strings.EqualFold(answer.Get("Upgrade"), upgradeProtocol) {
		return server
	}
	switch protocol := answer.Get(streamProtocolHeader); {
	case protocol == forwardProtocol:
		return &filter{src: server, forward: true}
	case strings.HasSuffix(protocol, commandProtocol):
		return &filter{src: server, sendsStatus: sendsStatus(protocol)}
	default:
		return server
	}
}

// sendsStatus reports whether a protocol ends every command with a metav1.Status (v4
// and later). Before, only failures were reported, and as text.
func sendsStatus(protocol string) bool {
	switch strings.TrimSuffix(protocol, commandProtocol) {
	case "", "v2.", "v3.":
		return false
	default:
		return true
	}
}

// filter follows where the frames of a server begin and end, and passes them on. When the
// connection to the server of a command is cut, or ends before the command's status was
// sent, it ends the error stream with a failure.
//
// Port-forward has no such stream, and its end is a failure. But where the client
// speaks WebSocket, hubs before Kubernetes 1.36 close its connection no sooner than it
// sends something: Close waits for a lock that a Read holds
// (k8s.io/apiserver/pkg/util/proxy/streamtunnel.go, v1.31 to v1.37). A client whose
// ping was lost to the cut sends nothing. So it gets the GOAWAY of a server that has
// failed, and closes its connection itself.
//
// Read returns whole frames only: DATA of which a part has come is passed on as a DATA
// frame of that part.
type filter struct {
	src         io.Reader
	sendsStatus bool
	forward     bool // the stream is a port-forward

	pending    []byte // to be passed on before more is read
	data       dataFrame
	statusSent bool // there was DATA on the error stream
	ended      bool // the error stream or the connection has ended: nothing can be added
	unknown    bool // a frame that is not known has come: what follows is passed on as it is
	err        error
}

// frameHeader is the header of a frame.
type frameHeader struct {
	control bool
	known   bool   // false for a control frame of another protocol or version
	kind    uint16 // of a control frame
	stream  uint32 // of DATA
	flags   byte
	size    int // of what follows, in bytes
}

// parseHeader reads the first headerSize bytes of a frame.
func parseHeader(b []byte) frameHeader {
	h := frameHeader{control: b[0]&controlBit != 0, known: true, flags: b[4], size: int(binary.BigEndian.Uint32(b[4:]) & maxDataSize)}
	if !h.control {
		h.stream = binary.BigEndian.Uint32(b)
		return h
	}
	h.known = b[0] == controlBit && b[1] == version
	h.kind = binary.BigEndian.Uint16(b[2:])
	return h
}

// dataFrame is a DATA frame of which a part is still to come.
type dataFrame struct {
	stream uint32
	flags  byte
	left   int
}

// encodeHeader writes the header of the frame to p.
func (d dataFrame) encodeHeader(p []byte) {
	binary.BigEndian.PutUint32(p, d.stream)
	binary.BigEndian.PutUint32(p[4:], uint32(d.flags)<<24|uint32(d.left)) //nolint:gosec // 24 bits
}

// Read needs room for more than the header of a frame.
func (f *filter) Read(p []byte) (int, error) {
	if len(p) <= headerSize {
		return 0, io.ErrShortBuffer
	}
	for {
		switch {
		case len(f.pending) > 0:
			n := copy(p, f.pending)
			f.pending = f.pending[n:]
			return n, nil
		case f.err != nil:
			return 0, f.err
		case f.unknown:
			return f.src.Read(p)
		case f.data.left > 0:
			if n := f.readData(p); n > 0 {
				return n, nil
			}
		default:
			f.readHeader()
		}
	}
}

// readData reads the next part of a DATA frame into p, as a frame.
func (f *filter) readData(p []byte) int {
	n, err := f.src.Read(p[headerSize:min(len(p), headerSize+f.data.left)])
	f.data.left -= n
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
		f.passedData()
	}
	part.encodeHeader(p)
	return headerSize + n
}

// passedData notes the end of a DATA frame.
func (f *filter) passedData() {
	if f.data.stream == errorStreamID && f.data.flags&flagFin != 0 && !f.forward {
		f.ended = true
	}
}

// readHeader reads the header of the next frame, and the rest of a control frame.
func (f *filter) readHeader() {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f.src, head); err != nil {
		f.end(err)
		return
	}
	h := parseHeader(head)
	if h.control {
		f.readControl(head, h)
		return
	}
	f.data = dataFrame{stream: h.stream, flags: h.flags, left: h.size}
	f.statusSent = f.statusSent || h.stream == errorStreamID && h.size > 0
	if h.size == 0 {
		f.pending = head
		f.passedData()
	}
}

// readControl reads a control frame behind its header.
func (f *filter) readControl(head []byte, h frameHeader) {
	if !h.known || h.size > maxControlFrame {
		f.unknown, f.pending = true, head
		return
	}
	frame := make([]byte, headerSize+h.size)
	copy(frame, head)
	if _, err := io.ReadFull(f.src, frame[headerSize:]); err != nil {
		f.end(fmt.Errorf("control frame: %w", err))
		return
	}
	f.pending = frame
	switch {
	case h.kind == typeGoAway: // a client reads no further
		f.ended = true
	case h.size < 4 || f.forward:
	case h.kind == typeReset, h.kind == typeSynReply && h.flags&flagFin != 0:
		f.ended = f.ended || binary.BigEndian.Uint32(frame[headerSize:])&^(1<<31) == errorStreamID
	}
}

// end handles the error in which the source has ended: io.EOF when it was the server
// that ended it, between frames.
func (f *filter) end(err error) {
	f.err = err
	clean := err == io.EOF //nolint:errorlint // an error that wraps io.EOF is no end in order
	switch {
	case f.forward:
		if !f.ended {
			f.pending = goAwayFrame()
		}
	case f.ended:
		f.err = io.EOF // a reset could destroy what is on its way, and says no more
	case clean && (f.statusSent || !f.sendsStatus):
	default:
		message := "stream ended without the status of the command"
		if !clean {
			message = fmt.Sprintf("stream was cut: %.*s", maxCutMessage, err)
		}
		f.pending = failureFrame(message, f.sendsStatus)
		f.err = io.EOF // as above
	}
}

// failureFrame is the frame that ends the error stream with a failure.
func failureFrame(message string, asStatus bool) []byte {
	body := []byte(message)
	if asStatus {
		// Plain strings always marshal.
		body, _ = json.Marshal(metav1.Status{ //nolint:errchkjson // as said
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
			Message: message, Code: http.StatusInternalServerError,
		})
	}
	frame := make([]byte, headerSize, headerSize+len(body))
	dataFrame{stream: errorStreamID, flags: flagFin, left: len(body)}.encodeHeader(frame)
	return append(frame, body...)
}

// goAwayFrame is the GOAWAY of a server that has failed: the last good stream is 0,
// INTERNAL_ERROR.
func goAwayFrame() []byte {
	return []byte{controlBit, version, 0, typeGoAway, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, goAwayInternalError}
}
