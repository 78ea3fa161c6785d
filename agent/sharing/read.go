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

// The calls of what follows the cluster have its context: what has ended says nothing.

// begin and finish enclose a fresh read of the cluster's objects.
func (s *share) begin(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.pass, s.read, s.before = map[string]struct{}{}, false, s.newestSpoke
	}
}

// finish returns false if all has to be read again, since versions have gone back.
func (s *share) finish(ctx context.Context, version string) bool {
	if problem := s.stillSuspended(ctx); problem != nil {
		s.suspend(s.engine.context(), problem)
		return true
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return true
	}
	if newer(version, s.before) != version {
		s.restored[merge.Spoke], s.newestSpoke = true, version
		for _, o := range s.objects {
			o.resourceVersion = ""
		}
		s.mu.Unlock()
		return false
	}
	for name, o := range s.objects {
		if _, ok := s.pass[name]; !ok && (o.spoke.present || o.spoke.absence != proven) {
			o.spoke, o.resourceVersion, o.gone = sight{}, "", time.Now()
			s.count(o)
			s.tidy(name)
		}
	}
	for name := range s.others {
		if _, ok := s.pass[name]; !ok {
			s.countOther(name, none)
		}
	}
	s.pass, s.read, s.problem = nil, true, nil
	s.changed()
	s.mu.Unlock()
	s.judge()
	return true
}

// stillSuspended asks whether what suspended the share is over.
func (s *share) stillSuspended(ctx context.Context) *wire.ShareProblem {
	s.mu.Lock()
	suspended, spec := s.suspended, s.spec
	s.mu.Unlock()
	if suspended == 0 || spec == nil {
		return nil
	}
	problem, err := s.engine.ending(ctx, spec)
	if err != nil {
		return clusterProblem(syncv1alpha1.ReasonRightsMissing, "%v", err)
	}
	if problem == nil {
		s.mu.Lock()
		s.suspended = 0
		s.mu.Unlock()
	}
	return problem
}

// fail notes why the cluster shares nothing for now.
func (s *share) fail(ctx context.Context, problem *wire.ShareProblem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.problem, s.read = problem, false
		s.disbelieve()
		s.changed()
	}
}

// disbelieve has no deletion be proven that was seen in the cluster and has not travelled
// yet: it may be of what ends now; s.mu is held.
func (s *share) disbelieve() {
	for _, o := range s.objects {
		if !o.spoke.present {
			o.spoke.absence = unproven
		}
	}
}

// suspend notes that the cluster's deletions prove nothing, until that is over, for which
// there is no event that the account may see.
func (s *share) suspend(ctx context.Context, problem *wire.ShareProblem) {
	s.mu.Lock()
	if s.problem != nil && !s.read {
		s.problem = problem
		s.mu.Unlock()
		return // it is looked at again already
	}
	s.problem, s.read = problem, false
	s.suspended++
	pause := min(firstSuspension<<min(s.suspended, 10), longestSuspension)
	s.disbelieve()
	s.changed()
	s.mu.Unlock()
	s.engine.spawn(func() {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			s.engine.start(s)
		}
	})
}

// resume notes that the cluster's objects are followed again and nothing was missed.
func (s *share) resume(ctx context.Context) {
	s.mu.Lock()
	if ctx.Err() == nil {
		s.problem, s.read = nil, true
		s.changed()
	}
	s.mu.Unlock()
	s.judge()
}
