// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"strconv"

	"github.com/spokelet/spokelet/tunnel"
)

// TunnelSessions gives the sessions of a tunnel.
type TunnelSessions struct {
	Tunnel *tunnel.Sessions
}

// Get implements Sessions.
func (t TunnelSessions) Get(ctx context.Context, cluster string) (Session, error) {
	s, err := t.Tunnel.Get(ctx, cluster)
	if err != nil {
		return nil, err // a nil *tunnel.Session would be a Session that is not nil
	}
	return tunnelSession{s}, nil
}

// Subscribe implements Sessions.
func (t TunnelSessions) Subscribe(f func(SessionEvent)) (cancel func()) {
	return t.Tunnel.Subscribe(func(e tunnel.Event) {
		event := SessionEvent{Cluster: e.Cluster, Reason: e.Reason}
		if e.Session != nil {
			event.Session = tunnelSession{e.Session}
		}
		f(event)
	})
}

// tunnelSession is comparable: two of one session are equal.
type tunnelSession struct{ *tunnel.Session }

// Info implements Session.
func (s tunnelSession) Info() SessionInfo {
	i := s.Session.Info()
	return SessionInfo{
		ConnectedAt:   i.ConnectedAt,
		RTT:           i.RTT,
		AgentVersion:  i.AgentVersion,
		Protocol:      strconv.FormatUint(uint64(i.Protocol), 10),
		ProcessID:     i.ProcessID,
		KubeSystemUID: i.KubeSystemUID,
	}
}
