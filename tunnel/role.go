// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// SetStandby says whether this process of the agent stands by or executes works,
// and tells the hub. It does not wait for the hub. Only an agent with
// AgentConfig.Roles has a role.
func (a *Agent) SetStandby(standby bool) {
	a.mu.Lock()
	standby = standby && a.config.Roles
	if standby && !a.standby {
		a.terms++
	}
	a.standby = standby
	sessions := make([]*agentSession, 0, len(a.live))
	for s := range a.live {
		sessions = append(sessions, s)
	}
	a.mu.Unlock()
	for _, s := range sessions {
		go s.tellRole()
	}
	if !standby {
		a.Wake()
	}
}

// role tells whether this process stands by, and how many terms have ended.
func (a *Agent) role() (standby bool, terms int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.standby, a.terms
}

// fits keeps a standby away from a hub that would take it for the executor: one
// that has never heard of roles.
func (a *Agent) fits(s *agentSession) error {
	if standby, _ := a.role(); s.door.roles || !standby {
		return nil
	}
	err := fmt.Errorf("%w: the hub knows of one agent process only", ErrStandby)
	s.end(err)
	return err
}

// tellRole tells the hub of a role that it does not know of yet.
func (s *agentSession) tellRole() {
	if err := s.door.role(); err != nil {
		s.end(fmt.Errorf("%w: role: %w", ErrLost, err))
	}
}

// Ranks of sessions, for the choice of the one in use. A session that says that
// its process executes works ranks above all that said so before: the lease in
// the spoke has one holder, and the last to claim it is the one that has it.
const (
	rankStandby = iota
	rankUntold  // an agent that does not tell its role executes
	rankFirst   // of those that tell
)

// claimPatience is how long two processes may both say that they execute works.
// The word of one that has ceased to may be slow.
const claimPatience = 3 * time.Second

// executes tells whether works may be sent over a session.
func (s *Session) executes() bool { return s.rank > rankStandby }

// rankNew gives a session its first rank. mu is held.
func (s *Sessions) rankNew(c *connected, session *Session) {
	switch {
	case !session.hello.Roles():
		session.rank = rankUntold
	case session.hello.Standby:
		session.rank = rankStandby
	default:
		s.claim(c, session)
	}
}

// claim ranks a session above all others. mu is held.
func (s *Sessions) claim(c *connected, session *Session) {
	c.claims++
	session.rank = rankFirst + c.claims
	if c.doubted || len(c.claimants()) < 2 {
		return
	}
	c.doubted = true // one timer for a cluster, however often it changes its mind
	name := session.cluster.Name
	time.AfterFunc(claimPatience, func() { s.judge(name) })
}

// judge looks at a cluster of which two processes said that they execute works.
// If they still do, one of them does not know of the lease: its identity was
// copied, or works in two clusters.
func (s *Sessions) judge(cluster string) {
	s.mu.Lock()
	c := s.clusters[cluster]
	c.doubted = false
	claimants := c.claimants()
	s.mu.Unlock()
	if len(claimants) > 1 && s.rivals != nil {
		s.rivals(cluster, claimants)
	}
}

// claimants lists the processes that say that they execute works, each by its
// newest session, the latest claim last. mu is held.
func (c *connected) claimants() []*Session {
	newest := map[string]*Session{}
	for _, session := range c.sessions {
		if session.rank >= rankFirst && session.Err() == nil && !session.slots.isDraining() {
			newest[session.processID()] = session
		}
	}
	claimants := make([]*Session, 0, len(newest))
	for _, session := range newest {
		claimants = append(claimants, session)
	}
	slices.SortFunc(claimants, func(a, b *Session) int { return cmp.Compare(a.rank, b.rank) })
	return claimants
}

// setRole notes what an agent says of its role.
func (s *Sessions) setRole(session *Session, standby bool) {
	s.change(session.cluster.Name, ErrStandby, func(c *connected) {
		if !standby {
			s.claim(c, session)
			return
		}
		session.rank = rankStandby
	})
}

// SubscribeExecutor is Subscribe for sessions that works may be sent over: an
// event's Session is the session in use while its process executes works, and
// nil while none does.
func (s *Sessions) SubscribeExecutor(f func(Event)) (cancel func()) {
	return s.subscribe(subscriber{f: f, executor: true})
}

// subscriber is told of the sessions in use, or of those of executors.
type subscriber struct {
	f        func(Event)
	executor bool
}

// view is what one kind of subscriber sees of a cluster.
func (c *connected) view(executor bool) *Session {
	if executor && c.current != nil && !c.current.executes() {
		return nil
	}
	return c.current
}

// reportRivals raises the alarm: two processes hold the identity of one cluster,
// and each says that it is the one that executes works.
func (s *Server) reportRivals(cluster string, rivals []*Session) {
	s.metrics.rivals.WithLabelValues(cluster).Inc()
	former, latest := rivals[len(rivals)-2], rivals[len(rivals)-1]
	s.config.Logger.Error(ErrRivals, "two agent processes execute the works of one cluster: was its certificate copied?",
		"cluster", cluster, "inUse", latest.processID(), "remote", latest.remote.String(),
		"other", former.processID(), "otherRemote", former.remote.String())
}

// roleChanged takes an agent's word for its role.
func (s *Server) roleChanged(session *Session, standby bool) {
	s.config.Logger.V(1).Info("agent process changed its role", "cluster", session.cluster.Name,
		"process", session.processID(), "standby", standby)
	s.sessions.setRole(session, standby)
}
