// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

//nolint:staticcheck // net/http, which is recommended instead, takes no connection made elsewhere
package reverse

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/spokelet/spokelet/tunnel/pipe"
	"github.com/spokelet/spokelet/tunnel/pipe/stream"
)

// copySize is how much is moved at once between HTTP/2 and a stream.
const copySize = 32 << 10

// forever is the patience with a slow reader: HTTP/2 has flow control.
const forever = time.Duration(math.MaxInt64)

// hubPipe is one connected agent process.
type hubPipe struct {
	raw         net.Conn
	client      *http2.ClientConn
	peer        pipe.Peer
	dialTimeout time.Duration

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	dialing bool
	live    *stream.Conn // the last stream, if any
	err     error        // why done is closed
}

var _ pipe.Pipe = (*hubPipe)(nil)

func newHubPipe(raw net.Conn, dialTimeout time.Duration) *hubPipe {
	p := &hubPipe{raw: raw, dialTimeout: dialTimeout, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Dial opens the stream to the agent process.
func (p *hubPipe) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("pipe to %s: dial: %w", p.name(), err)
	}
	return conn, nil
}

func (p *hubPipe) dial(ctx context.Context) (net.Conn, error) {
	if err := p.acquire(); err != nil {
		return nil, err
	}
	conn, err := p.connect(ctx)
	p.release(conn)
	if err != nil {
		if reason := p.reason(); reason != nil {
			return nil, reason
		}
		return nil, err
	}
	return conn, nil
}

// connect sends CONNECT. The request lives as long as the stream, its answer
// must come before ctx or the dial's own time ends.
func (p *hubPipe) connect(ctx context.Context) (*stream.Conn, error) {
	conn, err := stream.New(stream.Config{Local: pipe.Addr("hub"), Remote: pipe.Addr(p.name())})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.dialTimeout)
	defer cancel()
	streamCtx, end := context.WithCancel(p.ctx)
	stop := context.AfterFunc(ctx, end)
	resp, err := p.client.RoundTrip(connectRequest(streamCtx, conn))
	if !stop() || err != nil {
		end()
		if err == nil {
			// Once it is answered, HTTP/2 does not look at a request's context while it
			// waits for more of the body: the agent would hold the stream for ever.
			_ = resp.Body.Close()
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	go carry(conn, resp.Body, end)
	return conn, nil
}

func connectRequest(ctx context.Context, conn *stream.Conn) *http.Request {
	req := &http.Request{
		Method:        http.MethodConnect,
		URL:           &url.URL{Scheme: "https", Host: "session"},
		Host:          "session",
		Header:        http.Header{},
		Body:          &outgoing{conn: conn},
		ContentLength: -1,
	}
	return req.WithContext(ctx)
}

// carry moves what the agent sends to the stream, and clears away the request
// when the stream has ended.
func carry(conn *stream.Conn, body io.ReadCloser, end context.CancelFunc) {
	// Either end of the stream ends the request, and with it the body.
	go func() {
		<-conn.Done()
		end()
	}()
	err := receive(conn, body)
	conn.Fail(pipe.StreamEnd("agent", err))
	_ = body.Close() // The request is over either way.
}

// receive moves bytes to a stream until one of them ends.
func receive(conn *stream.Conn, from io.Reader) error {
	for {
		p := make([]byte, copySize)
		n, err := from.Read(p)
		if n > 0 {
			if err := conn.Deliver(p[:n], forever); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// outgoing is a request's body: what is written to the stream.
type outgoing struct {
	conn *stream.Conn
	rest []byte
}

// Read returns the next bytes that were written.
func (o *outgoing) Read(p []byte) (int, error) {
	if len(o.rest) == 0 {
		next, err := o.conn.Next()
		if err != nil {
			return 0, err
		}
		o.rest = next
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// Close frees Read: HTTP/2 sends no more. What the agent sent may still be on
// its way to the reader.
func (o *outgoing) Close() error {
	o.conn.FailWrites(pipe.StreamEnd("agent", nil))
	return nil
}

// acquire takes the right to the one stream.
func (p *hubPipe) acquire() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	if p.dialing || p.live != nil && !isDone(p.live) {
		return pipe.ErrBusy
	}
	p.dialing = true
	return nil
}

// release leaves the right to the stream, if there is one.
func (p *hubPipe) release(conn *stream.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing, p.live = false, conn
}

func isDone(conn *stream.Conn) bool {
	select {
	case <-conn.Done():
		return true
	default:
		return false
	}
}

// Done is closed when the agent's connection has ended.
func (p *hubPipe) Done() <-chan struct{} { return p.done }

// Close closes the agent's TCP connection.
func (p *hubPipe) Close() error {
	p.end(pipe.ErrClosed)
	return nil
}

func (p *hubPipe) lost() { p.end(pipe.ErrLost) }

// end ends the pipe once, for the first reason given.
func (p *hubPipe) end(reason error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = reason
		close(p.done)
	}
	p.mu.Unlock()
	if first {
		p.cancel()
		_ = p.raw.Close() // Gone either way.
	}
}

func (p *hubPipe) reason() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *hubPipe) name() string {
	return p.peer.Cluster.Name + "/" + p.peer.Process
}
