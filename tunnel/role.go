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
		a.endedTerms++
	}
	a.standby = standby
	sessions := make([]*agentSession, 0, len(a.sessions))
	for s := range a.sessions {
		sessions = append(sessions, s)
	}
	a.mu.Unlock()
	for _, s := range sessions {
		go s.sendRole()
	}
	if !standby {
		a.Wake()
	}
}

// currentRole returns whether this process is a standby, and how many of its terms as
// executor have ended.
func (a *Agent) currentRole() (standby bool, terms int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.standby, a.endedTerms
}

// checkRole closes the session of a standby with a hub that does not know roles, and
// so would take it for the executor.
func (a *Agent) checkRole(s *agentSession) error {
	if standby, _ := a.currentRole(); s.control.hubKnowsRoles || !standby {
		return nil
	}
	err := fmt.Errorf("%w: the hub knows of one agent process only", ErrStandby)
	s.closeWith(err)
	return err
}

// sendRole sends the role to the hub, unless it knows it.
func (s *agentSession) sendRole() {
	if err := s.control.sendRole(); err != nil {
		s.closeWith(fmt.Errorf("%w: role: %w", ErrLost, err))
	}
}

// Ranks of sessions, for the choice of the one in use. A session that says that
// its process executes works ranks above all that said so before: the lease in
// the spoke has one holder, and the last to claim it is the one that has it.
const (
	rankStandby     = iota
	rankWithoutRole // an agent that states no role is the executor
	rankExecutor    // of those that tell
)

// rivalDelay is how long two processes may both state that they execute works: the
// news that one of them has ceased to may be slow.
const rivalDelay = 3 * time.Second

// isExecutor reports whether works may be sent over the session.
func (s *Session) isExecutor() bool { return s.rank > rankStandby }

// setInitialRank ranks a new session. mu is held.
func (s *Sessions) setInitialRank(c *clusterSessions, session *Session) {
	switch {
	case !session.hello.Roles():
		session.rank = rankWithoutRole
	case session.hello.Standby:
		session.rank = rankStandby
	default:
		s.promote(c, session)
	}
}

// promote ranks the session of an executor above all others. mu is held.
func (s *Sessions) promote(c *clusterSessions, session *Session) {
	c.promotions++
	session.rank = rankExecutor + c.promotions
	if c.rivalCheckPending || len(c.executors()) < 2 {
		return
	}
	c.rivalCheckPending = true // one timer for a cluster, however often its roles change
	name := session.cluster.Name
	time.AfterFunc(rivalDelay, func() { s.checkRivals(name) })
}

// checkRivals reports two processes of a cluster that both state that they execute
// works. One of them does not know of the lease: its identity was copied, or it runs
// in another cluster.
func (s *Sessions) checkRivals(cluster string) {
	s.mu.Lock()
	c := s.clusters[cluster]
	c.rivalCheckPending = false
	claimants := c.executors()
	s.mu.Unlock()
	if len(claimants) > 1 && s.onRivals != nil {
		s.onRivals(cluster, claimants)
	}
}

// executors lists the processes that state that they execute works, each by its
// newest session, the last to say so last. mu is held.
func (c *clusterSessions) executors() []*Session {
	newest := map[string]*Session{}
	for _, session := range c.sessions {
		if session.rank >= rankExecutor && session.Err() == nil && !session.streams.isDraining() {
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

// setRole records the role that an agent states.
func (s *Sessions) setRole(session *Session, standby bool) {
	s.change(session.cluster.Name, ErrStandby, func(c *clusterSessions) {
		if !standby {
			s.promote(c, session)
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

// subscriber is called with events of the sessions in use, or of executors only.
type subscriber struct {
	f        func(Event)
	executor bool
}

// visibleSession is what one kind of subscriber sees of a cluster.
func (c *clusterSessions) visibleSession(executor bool) *Session {
	if executor && c.current != nil && !c.current.isExecutor() {
		return nil
	}
	return c.current
}

// reportRivals counts and logs that two processes with the identity of one cluster both
// state that they execute works.
func (s *Server) reportRivals(cluster string, rivals []*Session) {
	s.metrics.rivals.WithLabelValues(cluster).Inc()
	former, latest := rivals[len(rivals)-2], rivals[len(rivals)-1]
	s.config.Logger.Error(ErrRivals, "two agent processes execute the works of one cluster: was its certificate copied?",
		"cluster", cluster, "inUse", latest.processID(), "remote", latest.remote.String(),
		"other", former.processID(), "otherRemote", former.remote.String())
}

// handleRole handles a change of role that an agent states.
func (s *Server) handleRole(session *Session, standby bool) {
	s.config.Logger.V(1).Info("agent process changed its role", "cluster", session.cluster.Name,
		"process", session.processID(), "standby", standby)
	s.sessions.setRole(session, standby)
}
