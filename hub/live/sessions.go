// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Sessions gives the live sessions of clusters.
type Sessions interface {
	// Get returns the session of a cluster. The error wraps
	// tunnel.ErrNotConnected when there is none.
	Get(ctx context.Context, cluster string) (Session, error)
	// Subscribe calls f for every session there is, and then for every one that
	// begins or ends, serially. f does not block.
	Subscribe(f func(SessionEvent)) (cancel func())
}

// Session is one live session of a cluster. Sessions are compared by identity.
type Session interface {
	// RoundTrip sends a request to the door that the URL's host names.
	http.RoundTripper
	// Dial opens a raw stream to a door.
	Dial(ctx context.Context, door string) (net.Conn, error)
	// Info describes the session as it is now.
	Info() SessionInfo
}

// SessionInfo describes the session of a Cluster.
type SessionInfo struct {
	ConnectedAt   time.Time
	RTT           time.Duration
	AgentVersion  string
	Protocol      string
	ProcessID     string
	KubeSystemUID string
}

// SessionEvent says that a session of a cluster has begun or, when Session is
// nil, that it has ended for a reason.
type SessionEvent struct {
	Cluster string
	Session Session
	Reason  error
}
