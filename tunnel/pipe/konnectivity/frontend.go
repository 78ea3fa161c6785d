// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/tunnel/bufconn"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// frontend is one stream as the proxy server sees it: what konnectivity-client
// is to an external proxy server. Its Recv yields DIAL_REQ, then CLOSE_REQ and
// io.EOF; its Send takes what the agent answers.
//
// The bytes between take the same way in the same packets, but not through the
// proxy server's channels and goroutines, whose switches cost more than all
// else on the hub: the front end sends them to the agent itself, and gets them
// from the agent's stream (agentStream).
type frontend struct {
	ctx        context.Context
	random     int64
	patience   time.Duration
	pipeDone   <-chan struct{}
	pipeReason func() error
	send       func(*client.Packet) error
	conn       *stream

	// dialSent and closeSent belong to Recv, which one goroutine calls.
	dialSent, closeSent bool

	// answered is closed when the dial has an outcome: connectID, or dialErr.
	answered chan struct{}
	// abandoned is closed when nobody waits for the outcome any more, or the
	// stream ended before there was one.
	abandoned chan struct{}

	mu          sync.Mutex
	connectID   int64
	dialErr     error
	isAbandoned bool // abandoned is closed
	closed      bool // the far end is closed already
}

var _ client.ProxyService_ProxyServer = (*frontend)(nil)

func newFrontend(p *hubPipe) *frontend {
	return &frontend{
		// The proxy server insists on metadata, be it empty.
		ctx:        metadata.NewIncomingContext(p.ctx, metadata.MD{}),
		random:     newRandom(),
		patience:   p.patience,
		pipeDone:   p.done,
		pipeReason: p.closeReason,
		send:       p.send,
		conn:       newStream("hub", bufconn.Addr(p.name())),
		answered:   make(chan struct{}),
		abandoned:  make(chan struct{}),
	}
}

// newRandom returns a number that another agent could not guess, if it could
// answer at all. Zero is what an absent field reads as.
func newRandom() int64 {
	var b [8]byte
	rand.Read(b[:])
	return int64(binary.BigEndian.Uint64(b[:])>>1 | 1) //nolint:gosec // 63 bits
}

// dial waits for the agent's answer.
func (f *frontend) dial(ctx context.Context) (net.Conn, error) {
	var err error
	select {
	case <-f.answered:
		if err = f.dialOutcome(); err == nil {
			return f.conn, nil
		}
	case <-ctx.Done():
		err = ctx.Err()
	case <-f.pipeDone:
		// The proxy server forgets pending dials when an agent goes.
		err = f.pipeReason()
	}
	f.fail(err)
	return nil, err
}

func (f *frontend) dialOutcome() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dialErr
}

// Context is the context of the stream, with metadata.
func (f *frontend) Context() context.Context { return f.ctx }

// Recv returns the next packet for the agent, and io.EOF when there will be
// none: the proxy server waits for that to clear away the stream.
func (f *frontend) Recv() (*client.Packet, error) {
	if !f.dialSent {
		f.dialSent = true
		return dialRequest(f.random), nil
	}
	select {
	case <-f.answered:
	case <-f.abandoned:
	}
	connectID, open := f.openConnectID()
	if !open || f.closeSent {
		return nil, io.EOF
	}
	f.sendWritten(connectID)
	// Sent once and in any case: the proxy server does not clear away a stream that
	// ends while its dial completes.
	f.closeSent = true
	return closeRequest(connectID), nil
}

// sendWritten sends what is written to the stream, until it ends. The proxy server
// would do no more with it.
func (f *frontend) sendWritten(connectID int64) {
	for {
		p, block, err := f.conn.Out.Next()
		if err != nil {
			return
		}
		err = f.send(data(connectID, p)) // gRPC has copied it when it returns
		bufpool.Put(block)
		if err != nil {
			f.fail(streamEnd("agent", err))
			return
		}
	}
}

// isOpenAs reports whether the stream is open under this ID of the agent.
func (f *frontend) isOpenAs(id int64) bool {
	connectID, open := f.openConnectID()
	return open && id == connectID
}

// openConnectID returns the agent's ID of the connection, and false unless it is open.
func (f *frontend) openConnectID() (connectID int64, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.connectID, f.connectID != 0 && !f.closed
}

// Send takes a packet from the agent. It is called by the goroutine that
// serves the whole agent: it waits for a slow reader no longer than patience.
// An error makes the proxy server close a connection that was just made; about
// others it does nothing, so there is none.
func (f *frontend) Send(p *client.Packet) error {
	switch p.GetType() {
	case client.PacketType_DIAL_RSP:
		return f.handleDialResponse(p.GetDialResponse())
	case client.PacketType_DIAL_CLS:
		f.fail(streamEnd("agent", errors.New("dial closed")))
	case client.PacketType_DATA:
		f.deliver(p.GetData())
	case client.PacketType_CLOSE_RSP:
		f.handleClose(p.GetCloseResponse())
	default: // Not for a front end.
	}
	return nil
}

func (f *frontend) handleDialResponse(r *client.DialResponse) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isAbandoned || f.connectID != 0 || f.dialErr != nil {
		return fmt.Errorf("%w: answer to a dial that is over", errPacket)
	}
	switch {
	case r.GetError() != "":
		f.dialErr = fmt.Errorf("%w: agent: %.200q", pipe.ErrLost, r.GetError())
	case r.GetConnectID() == 0:
		f.dialErr = fmt.Errorf("%w: agent: no connection in its answer", pipe.ErrLost)
	default:
		f.connectID = r.GetConnectID()
	}
	close(f.answered)
	return nil
}

func (f *frontend) deliver(d *client.Data) {
	if d.GetError() != "" {
		f.fail(streamEnd("agent", fmt.Errorf("%.200q", d.GetError())))
		return
	}
	err := f.conn.In.WriteWithin(d.GetData(), f.patience)
	if err != nil && !f.conn.isClosed() {
		f.fail(fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, pipe.ErrStalled))
	}
}

// handleClose handles CLOSE_RSP, which does not tell how the far end ended: the agent
// sends the same for a clean end and for a read that failed, and the proxy server for
// the loss of the agent.
func (f *frontend) handleClose(r *client.CloseResponse) {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	reason := errors.New("closed")
	if r.GetError() != "" {
		reason = fmt.Errorf("%.200q", r.GetError())
	}
	f.fail(streamEnd("agent", reason))
}

// fail ends the stream and frees Recv.
func (f *frontend) fail(err error) {
	f.conn.fail(err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isAbandoned {
		return
	}
	f.isAbandoned = true
	close(f.abandoned)
	if f.connectID == 0 && f.dialErr == nil {
		f.dialErr = err
		close(f.answered)
	}
}

// The rest of grpc.ServerStream, which an in-process stream has no use for.

// SetHeader does nothing: there is no wire.
func (f *frontend) SetHeader(metadata.MD) error { return nil }

// SendHeader does nothing: there is no wire.
func (f *frontend) SendHeader(metadata.MD) error { return nil }

// SetTrailer does nothing: there is no wire.
func (f *frontend) SetTrailer(metadata.MD) {}

// SendMsg sends a packet.
func (f *frontend) SendMsg(m any) error {
	p, ok := m.(*client.Packet)
	if !ok {
		return fmt.Errorf("%w: %T", errPacket, m)
	}
	return f.Send(p)
}

// RecvMsg is not used: Recv makes the packets.
func (f *frontend) RecvMsg(m any) error {
	return fmt.Errorf("%w: %T", errPacket, m)
}
