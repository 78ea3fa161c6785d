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

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/tunnel/bufconn"
)

// streamLinger is how long a closed raw stream waits for the other side to end
// as well before it is aborted.
const streamLinger = 5 * time.Second

// maxRefusalText bounds what is repeated of an agent's refusal.
const maxRefusalText = 512

// streamBuffers is what a raw stream holds of one direction, in buffers of package
// bufpool. The window of HTTP/2 lies behind it; more here would only be more memory.
const streamBuffers = 1

func newStream(local, remote bufconn.Addr) bufconn.Conn {
	return bufconn.New(local, remote, streamBuffers)
}

// hubStream is the hub's end of a raw stream.
type hubStream struct {
	bufconn.Conn
	session *Session
	door    string
	cancel  context.CancelCauseFunc
	body    *requestBody

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
// func(error)) sends what another connection says without a goroutine.
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

// connect sends the CONNECT request. The caller has acquired the stream.
func (s *Session) connect(ctx context.Context, door string) (*hubStream, error) {
	traceless, _ := withoutTrace(ctx)
	life, cancel := context.WithCancelCause(context.WithoutCancel(traceless))
	st := &hubStream{
		Conn:    newStream("hub", bufconn.Addr(s.cluster.Name+"/"+door)),
		session: s,
		door:    door,
		cancel:  cancel,
	}
	st.body = &requestBody{written: st.Out}
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
		return nil, refusalError(resp)
	}
	go st.receive(resp.Body)
	return st, nil
}

// refusalError is the error of a raw stream that the agent did not open.
func refusalError(resp *http.Response) error {
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
// one place where a raw stream is released.
func (s *hubStream) receive(from io.ReadCloser) {
	err := bufpool.Copy(s.In, from)
	if err == nil {
		s.In.CloseWrite(io.EOF)
	} else {
		s.In.CloseWrite(s.session.streamError(err))
	}
	s.Out.CloseRead(ErrAborted)
	s.mu.Lock()
	if s.linger != nil {
		s.linger.Stop()
	}
	s.mu.Unlock()
	s.cancel(ErrAborted)
	_ = from.Close()
	s.session.streams.release(s.door)
}

// abortError is an error for a stream's other side. It never is io.EOF, which would be
// an end in order.
func abortError(reason error) error { return fmt.Errorf("%w: %w", ErrAborted, reason) }

// CloseWrite ends the hub's direction in order.
func (s *hubStream) CloseWrite() error {
	s.Out.CloseWrite(io.EOF)
	return nil
}

// Abort ends both directions at once; the agent sees an error.
func (s *hubStream) Abort(reason error) {
	s.Out.CloseWrite(abortError(reason))
	s.body.stopReading()
	s.In.CloseRead(net.ErrClosed)
	s.cancel(abortError(reason))
}

// Feed makes src the rest of what the hub sends. The goroutine that HTTP/2 has for the
// stream reads it as there is room, and nothing can be written any more. The end of src
// ends the hub's direction, and its error the stream.
//
// ended is called once, when src is no longer read: with nil or the error in which src
// has ended, or with one that wraps bufpool.ErrWrite and ErrAborted when the stream takes
// no more. Then others may read src.
func (s *hubStream) Feed(src Source, ended func(error)) {
	s.body.feed(src, ended)
	s.Out.CloseWrite(errFed)
}

// Close ends the stream: what was written is sent, what arrives from now on
// aborts it, and an agent that does not end its side is not waited for. A stream
// whose source has not ended is aborted.
func (s *hubStream) Close() error {
	s.Out.CloseWrite(io.EOF)
	s.body.stopReading()
	s.In.CloseRead(net.ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.linger == nil {
		s.linger = time.AfterFunc(streamLinger, func() { s.cancel(ErrAborted) })
	}
	return nil
}
