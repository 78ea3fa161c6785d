// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// lineBuffer is what a direction of a line holds before its sender waits:
	// a router's queue, and more than windows should ever fill.
	lineBuffer = 4 << 20
	// segment is how much is read from the line's ends at once.
	segment = 16 << 10
)

// Line is a link with a latency and a rate in each direction, in user space:
// what is sent waits its turn, as long as its bytes take at the rate, and then
// arrives after the latency.
type Line struct {
	latency time.Duration
	rate    float64 // bytes per second
}

// NewLine returns a line with a one-way latency and a rate in bytes per
// second.
func NewLine(latency time.Duration, rate float64) *Line {
	return &Line{latency: latency, rate: rate}
}

// DialContext connects over the line.
func (l *Line) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	far, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, inner, err := socketPair(ctx)
	if err != nil {
		_ = far.Close()
		return nil, err
	}
	go l.carry(far, inner)
	go l.carry(inner, far)
	return near, nil
}

// socketPair returns the two ends of a TCP connection over loopback.
func socketPair(ctx context.Context) (a, b net.Conn, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = listener.Close() }()
	a, err = (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	b, err = listener.Accept()
	if err != nil {
		_ = a.Close()
		return nil, nil, err
	}
	return a, b, nil
}

// parcel is what is under way on a line.
type parcel struct {
	bytes   []byte
	arrives time.Time
}

// carry moves bytes until either end fails, then closes both.
func (l *Line) carry(to io.WriteCloser, from io.ReadCloser) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	underway := make(chan parcel, lineBuffer/segment)
	var sender sync.WaitGroup
	defer sender.Wait()
	defer close(underway)
	sender.Go(func() { deliver(to, underway) })
	free := time.Now()
	for {
		p := make([]byte, segment)
		n, err := from.Read(p)
		if err != nil {
			return
		}
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
		underway <- parcel{bytes: p[:n], arrives: free.Add(l.latency)}
	}
}

// deliver writes parcels when they arrive. After a failure it drops them, so
// that the sender is not held.
func deliver(to io.WriteCloser, underway <-chan parcel) {
	var failed bool
	for p := range underway {
		if failed {
			continue
		}
		time.Sleep(time.Until(p.arrives))
		if _, err := to.Write(p.bytes); err != nil {
			failed = true
			_ = to.Close()
		}
	}
}
