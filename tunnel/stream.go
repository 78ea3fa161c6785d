// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// streamLinger is how long a closed raw stream waits for the other side to end
// as well before it is aborted.
const streamLinger = 5 * time.Second

// maxRefusalText bounds what is repeated of an agent's refusal.
const maxRefusalText = 512

// addr names an end of a raw stream.
type addr string

func (addr) Network() string  { return "spokelet" }
func (a addr) String() string { return string(a) }

// stream is a raw stream as a net.Conn: two buffers, moved by goroutines of the
// end that made it. Deadlines may pass and be set again.
type stream struct {
	in, out       *buffer
	local, remote addr
}

func (s *stream) Read(p []byte) (int, error)         { return s.in.Read(p) }
func (s *stream) Write(p []byte) (int, error)        { return s.out.Write(p) }
func (s *stream) LocalAddr() net.Addr                { return s.local }
func (s *stream) RemoteAddr() net.Addr               { return s.remote }
func (s *stream) SetReadDeadline(t time.Time) error  { s.in.setReadDeadline(t); return nil }
func (s *stream) SetWriteDeadline(t time.Time) error { s.out.setWriteDeadline(t); return nil }

func (s *stream) SetDeadline(t time.Time) error {
	s.in.setReadDeadline(t)
	s.out.setWriteDeadline(t)
	return nil
}

// hubStream is the hub's end of a raw stream.
type hubStream struct {
	stream
	session *Session
	door    string
	cancel  context.CancelCauseFunc
	body    *outgoing

	mu     sync.Mutex
	linger *time.Timer // set by Close
}

// Dial opens a raw stream to a door. On the agent it is a connection of the
// door's HTTP/1.1 server, so that requests may upgrade. The context bounds the
// opening alone.
//
// Reads end in io.EOF only when the agent ended the stream in order; whatever
// cuts it is another error. The connection has three more methods:
// CloseWrite() error ends the hub's direction and leaves the other open,
// Abort(error) ends both so that the agent sees an error too, and Feed(Source,
// func(error)) spares whoever sends what another connection says a goroutine.
// Close sends what was written, as TCP does. Errors are those of RoundTrip.
func (s *Session) Dial(ctx context.Context, door string) (net.Conn, error) {
	if _, err := ParseDoor(door); err != nil {
		return nil, s.wrapError(err)
	}
	if err := s.acquire(door); err != nil {
		return nil, err
	}
	stream, err := s.connect(ctx, door)
	if err != nil {
		s.streams.release(door)
		return nil, s.streamError(err)
	}
	return stream, nil
}

// connect sends the CONNECT request; the door's place is held by the caller.
func (s *Session) connect(ctx context.Context, door string) (*hubStream, error) {
	traceless, _ := withoutTrace(ctx)
	life, cancel := context.WithCancelCause(context.WithoutCancel(traceless))
	st := &hubStream{
		stream:  stream{in: newBuffer(), out: newBuffer(), local: "hub", remote: addr(s.cluster.Name + "/" + door)},
		session: s,
		door:    door,
		cancel:  cancel,
	}
	st.body = &outgoing{buffer: st.out}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	req := (&http.Request{
		Method:        http.MethodConnect,
		URL:           &url.URL{Scheme: "http", Host: door},
		Host:          door,
		Header:        http.Header{},
		Body:          st.body,
		ContentLength: -1,
	}).WithContext(life)
	resp, err := s.conn.RoundTrip(req)
	if err != nil {
		cancel(err)
		return nil, err
	}
	if !stop() {
		_ = resp.Body.Close()
		return nil, context.Cause(ctx)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel(ErrAborted)
		return nil, refusal(resp)
	}
	go st.receive(resp.Body)
	return st, nil
}

// refusal is the error of a raw stream that the agent did not open.
func refusal(resp *http.Response) error {
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusalText))
	switch resp.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("agent: %q: %w", text, ErrDoor)
	case http.StatusTooManyRequests:
		return fmt.Errorf("agent: %q: %w", text, ErrBusy)
	default:
		return fmt.Errorf("agent answered %d: %q: %w", resp.StatusCode, text, ErrRefused)
	}
}

// receive moves what the agent sends until the stream has ended, and is the
// one place where a raw stream is given up.
func (s *hubStream) receive(from io.ReadCloser) {
	err := pump(s.in, from)
	if err == nil {
		s.in.finish(io.EOF)
	} else {
		s.in.finish(s.session.streamError(err))
	}
	s.out.refuse(ErrAborted)
	s.mu.Lock()
	if s.linger != nil {
		s.linger.Stop()
	}
	s.mu.Unlock()
	s.cancel(ErrAborted)
	_ = from.Close()
	s.session.streams.release(s.door)
}

// aborted is an error for a stream's other side; never io.EOF itself, which
// would be an end in order.
func aborted(reason error) error { return fmt.Errorf("%w: %w", ErrAborted, reason) }

// idleChunk is what a stream that carries little holds to wait with, in bytes.
const idleChunk = 512

// pump copies until src ends in order (nil) or either side fails. It borrows
// memory while there is more to read than an idle stream's chunk holds.
func pump(dst *buffer, src io.Reader) error {
	idle := make([]byte, idleChunk)
	var lent *[streamBuffer]byte
	defer func() { giveBack(lent) }()
	for chunk := idle; ; {
		n, err := src.Read(chunk)
		if n > 0 {
			if _, werr := dst.Write(chunk[:n]); werr != nil {
				return werr
			}
		}
		// Compared, not unwrapped: an error that wraps io.EOF is not an end in
		// order.
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case n < idleChunk:
			giveBack(lent)
			lent, chunk = nil, idle
		case lent == nil:
			lent = lend()
			chunk = lent[:]
		}
	}
}

// CloseWrite ends the hub's direction in order.
func (s *hubStream) CloseWrite() error {
	s.out.finish(io.EOF)
	return nil
}

// Abort ends both directions at once; the agent sees an error.
func (s *hubStream) Abort(reason error) {
	s.out.finish(aborted(reason))
	s.body.giveUp()
	s.in.refuse(net.ErrClosed)
	s.cancel(aborted(reason))
}

// Feed makes src the rest of what the hub sends. It is read as there is room, by
// the goroutine that HTTP/2 has for the stream anyway, and nothing can be written
// any more. The end of src ends the hub's direction, and its error the stream.
//
// ended is called once, when src is read no more: with nil or the error in which
// src has ended, or with one that wraps ErrAborted when the stream took no more.
// Then others may read src on.
func (s *hubStream) Feed(src Source, ended func(error)) {
	s.body.feed(src, ended)
	s.out.finish(errFed)
}

// Close ends the stream: what was written is sent, what arrives from now on
// aborts it, and an agent that does not end its side is not waited for. A stream
// whose source has not ended is aborted.
func (s *hubStream) Close() error {
	s.out.finish(io.EOF)
	s.body.giveUp()
	s.in.refuse(net.ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.linger == nil {
		s.linger = time.AfterFunc(streamLinger, func() { s.cancel(ErrAborted) })
	}
	return nil
}
