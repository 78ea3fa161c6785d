// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "slices"

// room has places for connections whose peer is not known, some of them for
// each host. A newcomer gets one always. When its host has all of its share,
// the oldest connection of that host goes. When the room is full, the oldest of
// the host with the most connections goes: who fills the room from few hosts
// evicts himself and not those who came once.
type room struct {
	places, perHost int
	taken           int
	hosts           map[string][]*gatedConn // oldest first, none empty
}

func newRoom(places, perHost int) *room {
	return &room{places: places, perHost: perHost, hosts: map[string][]*gatedConn{}}
}

// add gives a connection a place and returns the one that has to leave for it,
// or nil. That one still has its place.
func (r *room) add(c *gatedConn) (oldest *gatedConn) {
	switch {
	case len(r.hosts[c.host]) >= r.perHost:
		oldest = r.hosts[c.host][0]
	case r.taken >= r.places:
		oldest = r.crowd()[0]
	}
	r.hosts[c.host] = append(r.hosts[c.host], c)
	r.taken++
	return oldest
}

// crowd returns the connections of the host that has the most.
func (r *room) crowd() (most []*gatedConn) {
	for _, conns := range r.hosts {
		if len(conns) > len(most) {
			most = conns
		}
	}
	return most
}

func (r *room) remove(c *gatedConn) {
	conns := r.hosts[c.host]
	i := slices.Index(conns, c)
	if i < 0 {
		return
	}
	r.taken--
	r.hosts[c.host] = slices.Delete(conns, i, i+1)
	if len(r.hosts[c.host]) == 0 {
		delete(r.hosts, c.host)
	}
}
