// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net/http"
)

var (
	// ErrNotConnected is wrapped by every NotConnectedError.
	ErrNotConnected = errors.New("not connected")
	// ErrBusy says that a session carries as many streams as it may. Nothing
	// was sent; HTTP callers answer 429.
	ErrBusy = errors.New("too many streams")
	// ErrDraining says that a session takes no new streams: its agent or this
	// hub is going away, or a newer session has taken its place.
	ErrDraining = errors.New("session is draining")
	// ErrClosed ends a session that was closed by its own side, in order.
	ErrClosed = errors.New("session closed")
	// ErrLost ends a session whose connection broke.
	ErrLost = errors.New("connection lost")
	// ErrUnresponsive ends a session whose peer answered no ping and sent
	// nothing else meanwhile: half-open or wedged.
	ErrUnresponsive = errors.New("peer does not answer")
	// ErrExpired ends a session at the end of its certificate.
	ErrExpired = errors.New("certificate expired")
	// ErrUntrusted ends a session whose certificate was signed by an authority that
	// the hub does not trust any more.
	ErrUntrusted = errors.New("certificate is no longer trusted")
	// ErrRefused says that the hub does not admit the peer.
	ErrRefused = errors.New("refused")
	// ErrIdentity says that a peer's certificate is not the one that was to be
	// on the other end.
	ErrIdentity = errors.New("unexpected identity")
	// ErrDoor says that an authority names no door.
	ErrDoor = errors.New("not a door")
	// ErrNeverConnected is the reason for clusters that have had no session
	// since this hub started.
	ErrNeverConnected = errors.New("no agent has connected since the hub started")
	// ErrStandby says that an agent process does not execute works now.
	ErrStandby = errors.New("agent process is a standby")
	// ErrRivals says that two processes of one cluster say that they execute
	// its works.
	ErrRivals = errors.New("rival agent processes")
	// ErrAborted ends a raw stream that its other side did not end cleanly.
	ErrAborted = errors.New("stream aborted")
)

// NotConnectedError says that a cluster has no session now, and why.
type NotConnectedError struct {
	// Cluster is the name that was asked for.
	Cluster string
	// Reason is what ended the last session, or ErrNeverConnected.
	Reason error
}

// Error names the cluster and the reason.
func (e *NotConnectedError) Error() string {
	return fmt.Sprintf("cluster %q: %v: %v", e.Cluster, ErrNotConnected, e.Reason)
}

// Unwrap gives ErrNotConnected and the reason.
func (e *NotConnectedError) Unwrap() []error { return []error{ErrNotConnected, e.Reason} }

// BusyError says that a stream was not opened because the session has no room
// for it. It wraps ErrBusy.
type BusyError struct {
	Cluster string
	Door    string
	// Limit is the number of streams that such a door may use at once.
	Limit int
}

// Error names the cluster, the door and its limit.
func (e *BusyError) Error() string {
	return fmt.Sprintf("cluster %q: door %q: %v: limit %d", e.Cluster, e.Door, ErrBusy, e.Limit)
}

// Unwrap gives ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// StatusCode is the HTTP status that answers a request which failed with err:
// 429 for a full session, 503 while there is none, 404 for a door that does
// not exist, 502 for a session that broke.
func StatusCode(err error) int {
	switch {
	case errors.Is(err, ErrBusy):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrNotConnected), errors.Is(err, ErrDraining):
		return http.StatusServiceUnavailable
	case errors.Is(err, ErrDoor):
		return http.StatusNotFound
	default:
		return http.StatusBadGateway
	}
}
