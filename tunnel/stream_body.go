// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"io"
	"sync"
	"time"
)

// errFed ends what was written to a stream when the rest comes from elsewhere.
var errFed = errors.New("the rest is read from a source")

// Source is what a stream may be fed from; a net.Conn is one.
type Source = interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// outgoing is the body of the CONNECT request: what was written, and then what
// is read from a source, if there is one. HTTP/2 reads it in a goroutine of the
// stream's own, and closes it when the stream has ended for whatever reason.
type outgoing struct {
	*buffer

	mu      sync.Mutex // guards what is below
	src     Source
	ended   func(error) // nil once called
	reading bool
	closed  bool
}

// feed sets the source. Read uses it once it has seen errFed.
func (o *outgoing) feed(src Source, ended func(error)) {
	o.mu.Lock()
	o.src, o.ended = src, ended
	closed := o.closed
	o.mu.Unlock()
	if closed {
		o.end(ErrAborted)
	}
}

// Read implements io.Reader.
func (o *outgoing) Read(p []byte) (int, error) {
	n, err := o.buffer.Read(p)
	if !errors.Is(err, errFed) {
		return n, err
	}
	if !o.begin() {
		return 0, ErrAborted
	}
	n, err = o.src.Read(p)
	switch closed := o.done(); {
	case closed:
		o.end(ErrAborted)
		return 0, ErrAborted
	case err == io.EOF: //nolint:errorlint // an error that wraps io.EOF is no end in order
		o.end(nil)
		return n, io.EOF
	case err != nil:
		o.end(err)
		return n, aborted(err)
	default:
		return n, nil
	}
}

// begin says that the source is about to be read, unless nobody sends it.
func (o *outgoing) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = !o.closed
	return o.reading
}

// done says that the source has been read.
func (o *outgoing) done() (closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading = false
	if o.closed {
		_ = o.src.SetReadDeadline(time.Time{}) // set by giveUp; others may read on
	}
	return o.closed
}

// giveUp ends the reading of the source, and says whether there was any.
func (o *outgoing) giveUp() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.reading {
		_ = o.src.SetReadDeadline(time.Unix(1, 0))
	}
	return o.reading
}

// end tells whoever fed the stream that its source is read no more.
func (o *outgoing) end(err error) {
	o.mu.Lock()
	ended := o.ended
	o.ended = nil
	o.mu.Unlock()
	if ended != nil {
		ended(err)
	}
}

// Close refuses what is still to be sent.
func (o *outgoing) Close() error {
	o.refuse(ErrAborted)
	if !o.giveUp() {
		o.end(ErrAborted)
	}
	return nil
}
