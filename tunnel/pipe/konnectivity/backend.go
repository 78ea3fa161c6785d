// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/spokelet/spokelet/internal/bufpool"
	"github.com/spokelet/spokelet/tunnel/bufconn"
	"github.com/spokelet/spokelet/tunnel/pipe"
)

// sender is the part of a gRPC stream that sends.
type sender interface {
	SendMsg(m any) error
}

// backend is what the hub's packets reach at the agent: the frontend's
// counterpart. Every dial, whatever its target, opens a stream to this process,
// without a socket between.
type backend struct {
	link *link

	sending sync.Mutex // gRPC sends one message at a time
	sender  sender

	mu       sync.Mutex
	closeErr error // why no stream is added any more
	lastID   int64
	conns    map[int64]*stream
}

// newBackend returns a backend whose streams end with the link: its reader may
// be waiting for one of them.
func newBackend(l *link, s sender) *backend {
	b := &backend{link: l, sender: s, conns: map[int64]*stream{}}
	context.AfterFunc(l.ctx, func() { b.fail(streamEnd("hub", l.Err())) })
	return b
}

// handle serves one packet of the hub. It waits for a slow reader no longer
// than patience. An error ends the link.
func (b *backend) handle(p *client.Packet) error {
	if err := checkFromServer(p); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	switch p.GetType() {
	case client.PacketType_DIAL_REQ:
		return b.dial(p.GetDialRequest().GetRandom())
	case client.PacketType_DATA:
		return b.deliver(p.GetData())
	case client.PacketType_CLOSE_REQ:
		return b.close(p.GetCloseRequest().GetConnectID())
	default: // DIAL_CLS: there is no dial that has not been answered.
		return nil
	}
}

// dial opens a stream. What the hub named as its target is not looked at.
func (b *backend) dial(random int64) error {
	conn := newStream(bufconn.Addr(b.link.config.Process), bufconn.Addr(b.link.config.Address))
	id := b.add(conn)
	if !b.link.enqueue(conn) {
		b.remove(id)
		return b.send(dialResponse(random, 0, "too many streams wait"))
	}
	if err := b.send(dialResponse(random, id, "")); err != nil {
		return err
	}
	go b.sendWritten(id, conn)
	return nil
}

// sendWritten sends what is written to a stream, and at its end a close.
func (b *backend) sendWritten(id int64, conn *stream) {
	defer b.remove(id)
	for {
		p, block, err := conn.Out.Next()
		if err != nil {
			break
		}
		err = b.send(data(id, p)) // gRPC has copied it when it returns
		bufpool.Put(block)
		if err != nil {
			conn.fail(streamEnd("hub", err))
			return // The hub is gone, and with it whom to tell.
		}
	}
	_ = b.send(closeResponse(id, "")) // It fails only with the link.
}

// deliver gives bytes to a stream's reader.
func (b *backend) deliver(d *client.Data) error {
	conn := b.get(d.GetConnectID())
	if conn == nil {
		return b.send(closeResponse(d.GetConnectID(), "no such connection"))
	}
	if d.GetError() != "" {
		conn.fail(streamEnd("hub", fmt.Errorf("%.200q", d.GetError())))
		return nil
	}
	if conn.In.WriteWithin(d.GetData(), defaultPatience) != nil {
		// Without effect on a stream that has ended before.
		conn.fail(streamEnd("agent", pipe.ErrStalled))
	}
	return nil
}

// close ends a stream that the hub closed; its end is then sent by carry.
func (b *backend) close(id int64) error {
	conn := b.get(id)
	if conn == nil {
		return b.send(closeResponse(id, "no such connection"))
	}
	conn.fail(streamEnd("hub", errors.New("closed")))
	return nil
}

func (b *backend) send(p *client.Packet) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.sender.SendMsg(p)
}

func (b *backend) add(conn *stream) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closeErr != nil {
		conn.fail(b.closeErr)
	}
	b.lastID++
	b.conns[b.lastID] = conn
	return b.lastID
}

func (b *backend) get(id int64) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns[id]
}

func (b *backend) remove(id int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, id)
}

// fail ends all streams.
func (b *backend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeErr = err
	for _, conn := range b.conns {
		conn.fail(err)
	}
}
