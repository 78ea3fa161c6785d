// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/tunnel/bufconn"
)

// errFed ends what was written to a stream when the rest comes from a source.
var errFed = errors.New("the rest is read from a source")

// errTaken says that the stream of a source takes no more.
var errTaken = fmt.Errorf("%w: %w", bufpool.ErrWrite, ErrAborted)

// Source is what a stream may be fed from; a net.Conn is one.
type Source = interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// requestBody is the body of the CONNECT request: what was written, and then what
// is read from a source, if there is one. HTTP/2 reads it in a goroutine of the
// stream's own, and closes it when the stream has ended for whatever reason.
type requestBody struct {
	written *bufconn.Buffer

	mu      sync.Mutex // guards what is below
	src     Source
	ended   func(error) // nil once called
	reading bool
	closed  bool
}

// feed sets the source. Read uses it after the error errFed.
func (b *requestBody) feed(src Source, ended func(error)) {
	b.mu.Lock()
	b.src, b.ended = src, ended
	closed := b.closed
	b.mu.Unlock()
	if closed {
		b.reportEnd(errTaken)
	}
}

// Read reads what was written, then the source.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.written.Read(p)
	if !errors.Is(err, errFed) {
		return n, err
	}
	if !b.startReading() {
		return 0, ErrAborted
	}
	n, err = b.src.Read(p)
	switch closed := b.finishReading(); {
	case closed:
		b.reportEnd(errTaken)
		return 0, ErrAborted
	case err == io.EOF: //nolint:errorlint // an error that wraps io.EOF is no end in order
		b.reportEnd(nil)
		return n, io.EOF
	case err != nil:
		b.reportEnd(err)
		return n, abortError(err)
	default:
		return n, nil
	}
}

// startReading marks the source as being read, unless the body is closed.
func (b *requestBody) startReading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = !b.closed
	return b.reading
}

func (b *requestBody) finishReading() (closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if b.closed {
		_ = b.src.SetReadDeadline(time.Time{}) // set by stopReading; others may read on
	}
	return b.closed
}

// stopReading interrupts the reading of the source, and reports whether it was being
// read.
func (b *requestBody) stopReading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.reading {
		_ = b.src.SetReadDeadline(time.Unix(1, 0))
	}
	return b.reading
}

// reportEnd calls ended, once.
func (b *requestBody) reportEnd(err error) {
	b.mu.Lock()
	ended := b.ended
	b.ended = nil
	b.mu.Unlock()
	if ended != nil {
		ended(err)
	}
}

// Close drops what is still to be sent.
func (b *requestBody) Close() error {
	b.written.CloseRead(ErrAborted)
	if !b.stopReading() {
		b.reportEnd(errTaken)
	}
	return nil
}
