// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/plan"
)

const (
	// maxDenialDelay is when a step is tried again that its executor may not do;
	// the status says so.
	maxDenialDelay = time.Minute
	// minDenialDelay is when it is tried again at first, and twice as long after
	// each time, up to the minute. The API server judges by caches of its own, so
	// that a work that follows its grant at once may meet an answer from before it.
	minDenialDelay = 2 * time.Second
)

// denialBackoff are the refusals of one work that wait for a right.
type denialBackoff struct {
	mu sync.Mutex
	// deniedRuns in a row that were refused a step, or an answer; guarded by mu.
	deniedRuns int
}

// hasDenial tells whether a step was refused, or could not be asked about: both are
// asked again less and less often.
func hasDenial(steps []*plan.Step) bool {
	return slices.ContainsFunc(steps, func(s *plan.Step) bool { return s.IsAccessUnknown || plan.IsAccessDenied(s.Error) })
}

// delay is how long a refusal stands before the question is put again.
func (d *denialBackoff) delay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return backoff(d.deniedRuns, minDenialDelay, maxDenialDelay)
}

// reset forgets the runs of another version of the work.
func (d *denialBackoff) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deniedRuns = 0
}

// recordRun records the end of a run, and whether the run was refused a step.
func (d *denialBackoff) recordRun(refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !refused {
		d.deniedRuns = 0
		return
	}
	d.deniedRuns++
}

// allowedCache are what the executor of one version of a work was found to be allowed.
type allowedCache struct {
	uid        string
	generation int64
	// allowed has the objects that it may write, or read; false is to be confirmed again.
	allowed map[manifest.ObjectID]bool
	// drifted are the objects that were not as they had been applied when they were last
	// looked at.
	drifted map[manifest.ObjectID]bool
}

func (p *allowedCache) isFor(d *plan.Spec) bool {
	return p != nil && p.uid == d.UID && p.generation == d.Generation
}

// recordDrift records whether an object is as it was applied, and returns true when it was so
// before and is not now. An object whose repair is refused or fails is tried again and
// again, and has strayed once.
func (p *allowedCache) recordDrift(id manifest.ObjectID, now bool) bool {
	if p == nil || p.drifted[id] == now {
		return false
	}
	if p.drifted == nil {
		p.drifted = map[manifest.ObjectID]bool{}
	}
	p.drifted[id] = now
	return now
}

// expire has everything asked again.
func (p *allowedCache) expire() {
	for id := range p.allowed {
		p.allowed[id] = false
	}
}

// executorNamespaces are those that steps read or write in the name of an executor.
func executorNamespaces(steps []*plan.Step) []string {
	var namespaces []string
	for _, s := range steps {
		if s.Options.Executor != nil {
			namespaces = append(namespaces, s.Target.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// checkAccess asks whether the work's executor may do what a step does. A step that
// writes nothing asks once in a review, and what it was told before stands while
// that cannot be found out: then it is asked again after some time.
func (e *Engine) checkAccess(ctx context.Context, w *work, s *plan.Step, writes bool) (again time.Duration, err error) {
	if s.Options.Executor == nil {
		return 0, nil
	}
	sure, before := w.allowed.allowed[s.Target.ObjectID]
	if sure && !writes {
		return 0, nil
	}
	obj, err := s.Object(s.Target, nil)
	if err != nil {
		return 0, err
	}
	err = e.executors.Check(ctx, s.AccessRequest(s.Options.Executor, obj))
	switch {
	case err == nil:
		w.allowed.allowed[s.Target.ObjectID] = true
	case plan.IsAccessDenied(err):
		delete(w.allowed.allowed, s.Target.ObjectID)
		return w.denials.delay(), err
	case before && !writes:
		s.IsAccessUnknown = true
		return w.denials.delay(), nil
	}
	return 0, err
}
