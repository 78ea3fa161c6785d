// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"time"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	syncv1alpha1 "github.com/spokelet/spokelet/api/sync/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// The watches pass their context to these methods: calls of a watch that has ended do nothing.

// beginList begins a list of the cluster's objects, which endList ends.
func (s *share) beginList(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.listedNames, s.spokeListed, s.versionBeforeList = map[string]struct{}{}, false, s.latestSpokeVersion
	}
}

// endList returns false if all must be listed again, since versions have gone back.
func (s *share) endList(ctx context.Context, version string) bool {
	if problem := s.recheckTermination(ctx); problem != nil {
		s.suspend(s.engine.getRunContext(), problem)
		return true
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return true
	}
	if laterVersion(version, s.versionBeforeList) != version {
		s.restored[merge.Spoke], s.latestSpokeVersion = true, version
		for _, o := range s.objects {
			o.resourceVersion = ""
		}
		s.mu.Unlock()
		return false
	}
	for name, o := range s.objects {
		if _, ok := s.listedNames[name]; !ok && (o.spoke.present || o.spoke.evidence != observed) {
			o.spoke, o.resourceVersion, o.deletedAt = sideState{}, "", time.Now()
			s.updateUsage(o)
			s.deleteIfUnused(name)
		}
	}
	for name := range s.unselectedSizes {
		if _, ok := s.listedNames[name]; !ok {
			s.updateUnselected(name, notThere)
		}
	}
	s.listedNames, s.spokeListed, s.problem = nil, true, nil
	s.requestReport()
	s.mu.Unlock()
	s.evaluateAbsent()
	return true
}

// recheckTermination returns what still ends the share's namespace or definition, if a check
// has found that before.
func (s *share) recheckTermination(ctx context.Context) *wire.ShareProblem {
	s.mu.Lock()
	suspended, spec := s.terminationChecks, s.spec
	s.mu.Unlock()
	if suspended == 0 || spec == nil {
		return nil
	}
	problem, err := s.engine.checkTermination(ctx, spec)
	if err != nil {
		return clusterProblem(syncv1alpha1.ReasonRightsMissing, "%v", err)
	}
	if problem == nil {
		s.mu.Lock()
		s.terminationChecks = 0
		s.mu.Unlock()
	}
	return problem
}

// setProblem records why the cluster shares no objects for now.
func (s *share) setProblem(ctx context.Context, problem *wire.ShareProblem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.problem, s.spokeListed = problem, false
		s.resetDeletionEvidence()
		s.requestReport()
	}
}

// resetDeletionEvidence makes deletions in the cluster unproven that are not on the hub yet:
// they may come from the end of the namespace or the definition; s.mu is held.
func (s *share) resetDeletionEvidence() {
	for _, o := range s.objects {
		if !o.spoke.present {
			o.spoke.evidence = unproven
		}
	}
}

// suspend stops the share while its namespace or definition ends. No event tells the account
// when that is over, so it is checked again after a pause.
func (s *share) suspend(ctx context.Context, problem *wire.ShareProblem) {
	s.mu.Lock()
	if s.problem != nil && !s.spokeListed {
		s.problem = problem
		s.mu.Unlock()
		return // the next check is scheduled already
	}
	s.problem, s.spokeListed = problem, false
	s.terminationChecks++
	pause := min(firstTerminationCheck<<min(s.terminationChecks, 10), longestTerminationCheck)
	s.resetDeletionEvidence()
	s.requestReport()
	s.mu.Unlock()
	s.engine.startGoroutine(func() {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			s.engine.startShare(s)
		}
	})
}

// resume records that the cluster's objects are watched again and no event was missed.
func (s *share) resume(ctx context.Context) {
	s.mu.Lock()
	if ctx.Err() == nil {
		s.problem, s.spokeListed = nil, true
		s.requestReport()
	}
	s.mu.Unlock()
	s.evaluateAbsent()
}
