// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// Event says that the session in use for a cluster has changed.
type Event struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Session is the one to use from now on; nil while there is none.
	Session *Session
	// Reason is what ended the previous session; nil when there was none.
	Reason error
}

// Sessions knows the connected clusters. Of several sessions of one cluster,
// one is in use and the others are warm: that of the process that executes
// works; while none says so, the one in use, or the oldest, until it ends or
// drains. A process which connects again replaces itself.
type Sessions struct {
	// deliverMu is held while a change is made and delivered, so that subscribers get
	// events one at a time and in the order of the changes. It is locked before mu.
	deliverMu sync.Mutex

	mu       sync.Mutex
	clusters map[string]*clusterSessions
	subs     map[int]subscriber
	nextSub  int
	frozen   bool // this hub shuts down: no more events

	// onRivals, if set, is called with processes that both state that they execute the
	// works of a cluster, the last to say so last.
	onRivals func(cluster string, claimants []*Session)
}

// clusterSessions is what is known of one cluster that has had a session.
type clusterSessions struct {
	sessions          []*Session // oldest first
	current           *Session   // in use; nil while there is none
	reason            error      // what ended the last session in use
	traffic           traffic    // of the sessions that have ended
	promotions        int        // how often a process has stated that it executes works
	rivalCheckPending bool       // checkRivals is due
}

func newSessions() *Sessions {
	return &Sessions{clusters: map[string]*clusterSessions{}, subs: map[int]subscriber{}}
}

// Get returns the session in use for a cluster. Without one the error is a
// *NotConnectedError at once; Get never waits for a cluster to connect.
func (s *Sessions) Get(ctx context.Context, cluster string) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		return nil, &NotConnectedError{Cluster: cluster, Reason: ErrNeverConnected}
	}
	if c.current == nil {
		return nil, &NotConnectedError{Cluster: cluster, Reason: c.reason}
	}
	// A session that has just ended is not returned, although its event is still
	// to be delivered.
	if err := c.current.Err(); err != nil {
		return nil, &NotConnectedError{Cluster: cluster, Reason: err}
	}
	return c.current, nil
}

// List describes every live session, by cluster and age, warm ones included.
func (s *Sessions) List() []Info {
	var infos []Info
	for _, session := range s.listSessions() {
		infos = append(infos, session.Info())
	}
	return infos
}

// Subscribe calls f with every event from now on, after replaying the sessions
// in use at this moment. Calls come one at a time and in order. f must not
// block, nor call Subscribe; it may call Get and List. After cancel no new call
// is made.
func (s *Sessions) Subscribe(f func(Event)) (cancel func()) {
	return s.subscribe(subscriber{f: f})
}

func (s *Sessions) subscribe(sub subscriber) (cancel func()) {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	s.mu.Lock()
	id := s.nextSub
	s.nextSub++
	s.subs[id] = sub
	present := s.currentEvents(sub.executor)
	s.mu.Unlock()
	for _, e := range present {
		sub.f(e)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, id)
	}
}

// currentEvents lists an event for every session that a subscriber sees. mu is held.
func (s *Sessions) currentEvents(executor bool) []Event {
	var events []Event
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		if seen := s.clusters[name].visibleSession(executor); seen != nil {
			events = append(events, Event{Cluster: name, Session: seen})
		}
	}
	return events
}

// add makes a session known. It returns those that it replaces, of the same
// process, which are to take no new streams.
func (s *Sessions) add(session *Session) (replaced []*Session) {
	s.change(session.cluster.Name, nil, func(c *clusterSessions) {
		for _, other := range c.sessions {
			if other.processID() == session.processID() {
				replaced = append(replaced, other)
				other.rank = rankStandby
			}
		}
		c.sessions = append(c.sessions, session)
		s.setInitialRank(c, session)
		if slices.Contains(replaced, c.current) {
			c.current = session
		}
	})
	return replaced
}

// withdraw takes a draining session out of use. It stays registered until it ends.
func (s *Sessions) withdraw(session *Session, reason error) {
	s.change(session.cluster.Name, reason, func(c *clusterSessions) {
		if c.current == session {
			c.current = nil
		}
	})
}

// remove removes a session that has ended.
func (s *Sessions) remove(session *Session, reason error) {
	s.change(session.cluster.Name, reason, func(c *clusterSessions) {
		c.sessions = slices.DeleteFunc(c.sessions, func(o *Session) bool { return o == session })
		c.traffic = c.traffic.plus(session.traffic())
		if c.current == session {
			c.current = nil
		}
	})
}

// change applies f to a cluster, elects the session in use, and calls the subscribers
// for whom it has changed.
func (s *Sessions) change(cluster string, reason error, f func(*clusterSessions)) {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	for _, notify := range s.applyChange(cluster, reason, f) {
		notify()
	}
}

func (s *Sessions) applyChange(cluster string, reason error, f func(*clusterSessions)) (notifications []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		c = &clusterSessions{}
		s.clusters[cluster] = c
	}
	before := map[bool]*Session{false: c.visibleSession(false), true: c.visibleSession(true)}
	f(c)
	c.current = c.elect()
	if s.frozen {
		return nil
	}
	if before[false] != nil && before[false] != c.current {
		c.reason = reason
	}
	for _, id := range slices.Sorted(maps.Keys(s.subs)) {
		sub := s.subs[id]
		if seen := c.visibleSession(sub.executor); seen != before[sub.executor] {
			event := Event{Cluster: cluster, Session: seen, Reason: reason}
			notifications = append(notifications, func() { sub.f(event) })
		}
	}
	return notifications
}

// elect returns the session of the highest rank, or the one in use, or the
// oldest, of those that take new streams.
func (c *clusterSessions) elect() *Session {
	best := c.current
	for _, session := range c.sessions {
		if session.Err() != nil || session.streams.isDraining() {
			continue
		}
		if best == nil || session.rank > best.rank {
			best = session
		}
	}
	return best
}

// freeze ends the delivery of events: the end of the hub is not an event of any
// cluster.
func (s *Sessions) freeze() {
	s.deliverMu.Lock()
	defer s.deliverMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

// listSessions lists the live sessions by cluster, then age.
func (s *Sessions) listSessions() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sessions []*Session
	for _, c := range s.clusters {
		sessions = append(sessions, c.sessions...)
	}
	slices.SortStableFunc(sessions, func(a, b *Session) int {
		return cmp.Compare(a.cluster.Name, b.cluster.Name)
	})
	return sessions
}

// eachCluster calls f with the figures of every cluster that has had a session
// since this hub started, in the order of their names.
func (s *Sessions) eachCluster(f func(clusterStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		f(s.clusters[name].stats(name))
	}
}
