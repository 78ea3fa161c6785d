// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// maxStrangers bounds the connections of a port on which no request has
	// been authorized, maxCallers those on which one has, and maxKept those whose
	// clients alone end what is left of a stream.
	maxStrangers = 64
	maxCallers   = 64
	maxKept      = 256

	// strangerTime is what a connection has until its first authorized request.
	strangerTime = 10 * time.Second
)

// port bounds the connections of a node's port. Nobody waits behind those who
// do nothing: beyond a bound the oldest connection is closed for the newest.
type port struct {
	net.Listener

	mu        sync.Mutex // guards what is below, oldest first, and their visitors
	strangers []*visitor
	callers   []*visitor
	kept      []*visitor
}

// Accept returns the next connection, a stranger's.
func (p *port) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: conn, port: p}
	p.mu.Lock()
	v.timer = time.AfterFunc(strangerTime, func() { _ = v.Close() })
	oldest := p.enter(&p.strangers, v, maxStrangers)
	p.mu.Unlock()
	oldest.close()
	return v, nil
}

// enter puts v on a list, behind the others, and takes the oldest off it if there
// are then more than so many. The caller holds mu, and closes the oldest without it.
func (p *port) enter(list *[]*visitor, v *visitor, most int) (oldest *visitor) {
	*list = append(*list, v)
	if len(*list) <= most {
		return nil
	}
	oldest = (*list)[0]
	p.remove(oldest)
	return oldest
}

// remove takes a visitor out, wherever it is. The caller holds mu.
func (p *port) remove(v *visitor) {
	same := func(other *visitor) bool { return other == v }
	p.strangers = slices.DeleteFunc(p.strangers, same)
	p.callers = slices.DeleteFunc(p.callers, same)
	p.kept = slices.DeleteFunc(p.kept, same)
	v.timer.Stop()
}

// visitor is a connection of a port.
type visitor struct {
	net.Conn
	port  *port
	timer *time.Timer
	// streams is how many it carries; while there are any, it is on no list, but for
	// that of kept ones.
	streams int
	closed  bool
}

// welcome makes a stranger a caller, who may take time.
func (v *visitor) welcome() {
	p := v.port
	p.mu.Lock()
	if !slices.Contains(p.strangers, v) { // a caller already, or closed
		p.mu.Unlock()
		return
	}
	p.remove(v)
	oldest := p.enter(&p.callers, v, maxCallers)
	p.mu.Unlock()
	oldest.close()
}

// hold keeps v from giving way while it carries a stream of a session: those are as
// many as the session allows.
func (v *visitor) hold() {
	v.port.mu.Lock()
	defer v.port.mu.Unlock()
	v.port.remove(v)
	v.streams++
}

// keep says that the session has no part any more in the stream that v carries: v
// gives way to others of which that is so. Nil is nobody.
func (v *visitor) keep() {
	if v == nil {
		return
	}
	p := v.port
	p.mu.Lock()
	if v.closed {
		p.mu.Unlock()
		return
	}
	oldest := p.enter(&p.kept, v, maxKept)
	p.mu.Unlock()
	oldest.close()
}

// release ends what hold began; nil is nobody.
func (v *visitor) release() {
	if v == nil {
		return
	}
	p := v.port
	p.mu.Lock()
	p.remove(v)
	v.streams--
	if v.closed || v.streams > 0 {
		p.mu.Unlock()
		return
	}
	oldest := p.enter(&p.callers, v, maxCallers)
	p.mu.Unlock()
	oldest.close()
}

// close closes the connection of one who was taken out; nil is nobody.
func (v *visitor) close() {
	if v != nil {
		_ = v.Conn.Close()
	}
}

// Close closes the connection.
func (v *visitor) Close() error {
	v.port.mu.Lock()
	v.port.remove(v)
	v.closed = true
	v.port.mu.Unlock()
	return v.Conn.Close()
}

// Abort closes the connection so that the client sees a reset: TLS is read to its
// end by clients that find none.
func (v *visitor) Abort(error) {
	if tcp, ok := v.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = v.Close()
}

type visitorKey struct{}

// withVisitor is http.Server's ConnContext.
func withVisitor(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, visitorKey{}, conn)
}

// welcome says that a request was authorized.
func welcome(ctx context.Context) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.welcome()
	}
}

// hold keeps a request's connection from giving way until it is released.
func hold(ctx context.Context) *visitor {
	v, ok := ctx.Value(visitorKey{}).(*visitor)
	if ok {
		v.hold()
	}
	return v
}
