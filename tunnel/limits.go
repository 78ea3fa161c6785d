// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"time"
)

// Limits bounds what a peer can claim and how long it can take. The zero value
// of a field means its default.
type Limits struct {
	// Streams is the number of streams that a session carries at once
	// (default 2048).
	Streams int
	// ReservedStreams of them are kept for Control and Sync (default 64).
	ReservedStreams int
	// StreamWindow is the most that one stream may have in flight towards a
	// side, in bytes (default 512 KiB).
	StreamWindow int
	// MinStreamWindow is the least that StreamWindow shrinks to while many
	// streams share a session (default 32 KiB).
	MinStreamWindow int
	// WindowBudget is the sum of the windows of a session's streams, in bytes:
	// memory that the other side can claim here (default 64 MiB).
	WindowBudget int
	// HandshakeTimeout bounds each step from an accepted connection to a live
	// session: TCP with TLS, the session's TLS, the hellos (default 10 s).
	HandshakeTimeout time.Duration
	// PingInterval is the time between a session's pings (default 5 s).
	PingInterval time.Duration
	// PingTimeout is how long a peer may neither answer a ping nor send
	// anything else (default 5 s).
	PingTimeout time.Duration
	// DrainGrace is how long a side that goes away lets streams finish
	// (default 20 s).
	DrainGrace time.Duration
	// Handshakes is the number of connections to the public port whose TLS is
	// not done, at once (default 2048).
	Handshakes int
	// HandshakesPerHost is the number of them from one IPv4 address or IPv6 /64
	// network (default 512).
	HandshakesPerHost int
	// Anonymous is the number of connections to the public port whose TLS is
	// done without client certificate, at once (default 256). Four times as many more
	// may be those of peers that hold a join token.
	Anonymous int
	// AnonymousPerHost is the number of them from one IPv4 address or IPv6 /64
	// network (default 32).
	AnonymousPerHost int
	// AnonymousLifetime is the longest that one of them lasts (default 10 min,
	// as an enrolment waits for people).
	AnonymousLifetime time.Duration
	// ClusterConnections is the number of connections to the public port with
	// certificates of one cluster, at once (default 32, twice its pipes).
	ClusterConnections int
}

// Default returns the limits with a value in every field.
func (l Limits) Default() Limits {
	setDefault(&l.Streams, 2048)
	setDefault(&l.ReservedStreams, 64)
	setDefault(&l.StreamWindow, 512<<10)
	setDefault(&l.MinStreamWindow, 32<<10)
	setDefault(&l.WindowBudget, 64<<20)
	setDefault(&l.HandshakeTimeout, 10*time.Second)
	setDefault(&l.PingInterval, 5*time.Second)
	setDefault(&l.PingTimeout, 5*time.Second)
	setDefault(&l.DrainGrace, 20*time.Second)
	setDefault(&l.Handshakes, 2048)
	setDefault(&l.HandshakesPerHost, 512)
	setDefault(&l.Anonymous, 256)
	setDefault(&l.AnonymousPerHost, 32)
	setDefault(&l.AnonymousLifetime, 10*time.Minute)
	setDefault(&l.ClusterConnections, 32)
	return l
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Validate reports every field of defaulted limits that makes no sense.
func (l Limits) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(l.Streams > 0 && l.Streams <= maxStreams, "streams: %d is not in 1 to %d", l.Streams, maxStreams)
	check(l.ReservedStreams > 0 && l.ReservedStreams < l.Streams, "reservedStreams: %d is not in 1 to streams", l.ReservedStreams)
	check(l.MinStreamWindow >= maxFrame, "minStreamWindow: %d is less than a frame of %d", l.MinStreamWindow, maxFrame)
	check(l.StreamWindow >= l.MinStreamWindow, "streamWindow: %d is less than minStreamWindow", l.StreamWindow)
	check(l.StreamWindow <= maxWindow, "streamWindow: %d is more than %d", l.StreamWindow, maxWindow)
	check(l.WindowBudget >= l.StreamWindow, "windowBudget: %d is less than streamWindow", l.WindowBudget)
	check(l.HandshakeTimeout > 0, "handshakeTimeout: %v is not positive", l.HandshakeTimeout)
	check(l.PingInterval > 0, "pingInterval: %v is not positive", l.PingInterval)
	check(l.PingTimeout > 0, "pingTimeout: %v is not positive", l.PingTimeout)
	check(l.DrainGrace > 0, "drainGrace: %v is not positive", l.DrainGrace)
	check(l.Handshakes > 0, "handshakes: %d is not positive", l.Handshakes)
	check(l.HandshakesPerHost > 0, "handshakesPerHost: %d is not positive", l.HandshakesPerHost)
	check(l.Anonymous > 0, "anonymous: %d is not positive", l.Anonymous)
	check(l.AnonymousPerHost > 0, "anonymousPerHost: %d is not positive", l.AnonymousPerHost)
	check(l.ClusterConnections > 0, "clusterConnections: %d is not positive", l.ClusterConnections)
	check(l.AnonymousLifetime > 0, "anonymousLifetime: %v is not positive", l.AnonymousLifetime)
	return errors.Join(errs...)
}

// Constants of the wire; docs/wire.md.
const (
	// maxStreams bounds Limits.Streams: with more the connection's window would
	// no longer hold a stream's smallest window each.
	maxStreams = 16384
	// maxFrame is the largest HTTP/2 frame either side takes. It is one TLS
	// record, so that a frame of a bulk stream delays others by little, and the
	// buffer that Go keeps per request body in flight is no larger.
	maxFrame = 16 << 10
	// maxWindow bounds a stream's window.
	maxWindow = 16 << 20
	// connectionWindow is the window of the whole connection. It never binds:
	// the budget is held by the windows of the streams, so that a stream which
	// stalls cannot take the others' share.
	connectionWindow = 1 << 30
	// streamSlack is added to the streams an agent allows: its server frees a
	// stream a moment after the hub has seen it end.
	streamSlack = 64
	// maxHeaderBytes bounds the header of one request or answer.
	maxHeaderBytes = 256 << 10
	// maxMessage bounds a gRPC message on the public port, before and after
	// authentication; the pipe's packets are smaller.
	maxMessage = 64 << 10
)
