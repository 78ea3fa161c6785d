// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import "github.com/spokelet/spokelet/tunnel"

// LinksOf reads the links from the hub's sessions.
func LinksOf(sessions *tunnel.Sessions) Links { return sessionLinks{sessions} }

type sessionLinks struct {
	sessions *tunnel.Sessions
}

// Subscribe translates events: of a session only its being there matters.
func (s sessionLinks) Subscribe(f func(Link)) (cancel func()) {
	return s.sessions.Subscribe(func(e tunnel.Event) {
		link := Link{Cluster: e.Cluster, Up: e.Session != nil}
		if !link.Up && e.Reason != nil {
			link.Reason = e.Reason.Error()
		}
		f(link)
	})
}
