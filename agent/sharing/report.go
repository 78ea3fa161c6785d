// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// requestReport has the state of a share reported.
func (e *Engine) requestReport(s *share) {
	e.mu.Lock()
	if e.sharesByName[s.name] == s {
		e.sharesToReport[s] = struct{}{}
	}
	e.mu.Unlock()
	select {
	case e.reportNeeded <- struct{}{}:
	default:
	}
}

// runReporter publishes the states of shares until ctx ends: at once, and then with a pause.
func (e *Engine) runReporter(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-e.reportNeeded:
		}
		e.mu.Lock()
		all := e.sharesToReport
		e.sharesToReport = map[*share]struct{}{}
		e.mu.Unlock()
		for s := range all {
			e.publishState(s)
		}
		pause.Reset(reportInterval)
	}
}

func (e *Engine) publishState(s *share) {
	s.mu.Lock()
	if s.spec == nil {
		s.mu.Unlock()
		return
	}
	state, uid := s.buildState(), s.uid
	s.mu.Unlock()
	body, err := json.Marshal(state)
	if err == nil {
		err = e.states.Put(resource.Resource{Key: s.name, UID: uid, Generation: state.Generation, Body: body})
	}
	if err != nil {
		e.cfg.Logger.Error(err, "state of a share cannot be reported", "share", s.name)
	}
}

// buildState returns the state that the hub gets; s.mu is held.
func (s *share) buildState() wire.ShareState {
	state := wire.ShareState{Generation: s.generation, Problem: s.problem, Decided: s.decisions}
	first := ""
	for name, o := range s.objects {
		if o.hasRecord && o.hub.present && o.spoke.present {
			state.Objects++
		}
		if len(o.differences) > 0 {
			state.Conflicts++
		}
		if o.failure != "" && (first == "" || name < first) {
			first = name
			state.LastError = wire.ClipReason(o.failure)
		}
	}
	if state.Hold = s.holds[merge.Hub]; state.Hold == nil {
		state.Hold = s.holds[merge.Spoke]
	}
	state.QuotaReached = s.quotaReached()
	if s.problem == nil && !s.spokeListed {
		state.Problem = clusterProblem(syncv1alpha1.ReasonPending, "objects are being read")
	}
	return state
}

// reportDecision reports a conflict that the winner has decided: to the hub and as an Event.
func (s *share) reportDecision(name string, spec *wire.Share, conflicts []string, winner merge.Side, uid types.UID) {
	if len(conflicts) == 0 {
		return
	}
	d := wire.NewDecided(s.engine.nextGeneration(), name, conflicts, wireSide(winner))
	s.mu.Lock()
	s.decisions = append(s.decisions[max(0, len(s.decisions)+1-wire.MaxDecided):len(s.decisions):len(s.decisions)], d)
	s.requestReport()
	s.mu.Unlock()
	s.engine.cfg.Events.Event(&corev1.ObjectReference{
		APIVersion: spec.Group + "/" + spec.Version, Kind: spec.Kind, Namespace: spec.SpokeNamespace, Name: name, UID: uid,
	}, "ConflictDecided", decisionNote(d))
}

func decisionNote(d wire.Decided) string {
	winner := "hub"
	if d.Winner == wire.SharedSpoke {
		winner = "cluster"
	}
	return "both sides changed " + strings.Join(d.Fields, ", ") + ": the change of the " + winner + " stays"
}
