// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// permissionRetry is when a step is tried again that its executor may not do;
	// the status says so.
	permissionRetry = time.Minute
	// permissionLag is when it is tried again at first, and twice as long after
	// each time, up to the minute. The API server judges by caches of its own, so
	// that a work that follows its grant at once may meet an answer from before it.
	permissionLag = 2 * time.Second
)

// denied are the refusals of one work that wait for a right.
type denied struct {
	mu sync.Mutex
	// runs in a row that were refused a step, or an answer; guarded by mu.
	runs int
}

// refusedIn tells whether a step was refused, or could not be asked about: both are
// asked again less and less often.
func refusedIn(steps []*step) bool {
	return slices.ContainsFunc(steps, func(s *step) bool { return s.unasked || isRefusal(s.err) })
}

// wait is how long a refusal stands before the question is put again.
func (d *denied) wait() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return backoff(d.runs, permissionLag, permissionRetry)
}

// reset forgets the runs of another version of the work.
func (d *denied) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = 0
}

// ended records the end of a run, and whether the run was refused a step.
func (d *denied) ended(refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !refused {
		d.runs = 0
		return
	}
	d.runs++
}

// permits are what the executor of one version of a work was found to be allowed.
type permits struct {
	uid        string
	generation int64
	// confirmed has the objects that it may write, or read; false is to be confirmed again.
	confirmed map[objectID]bool
	// strayed are the objects that were not as they had been applied when they were last
	// looked at.
	strayed map[objectID]bool
}

func (p *permits) areOf(d *desired) bool {
	return p != nil && p.uid == d.uid && p.generation == d.generation
}

// strays records whether an object is as it was applied, and returns true when it was so
// before and is not now. An object whose repair is refused or fails is tried again and
// again, and has strayed once.
func (p *permits) strays(id objectID, now bool) bool {
	if p == nil || p.strayed[id] == now {
		return false
	}
	if p.strayed == nil {
		p.strayed = map[objectID]bool{}
	}
	p.strayed[id] = now
	return now
}

// expire has everything asked again.
func (p *permits) expire() {
	for id := range p.confirmed {
		p.confirmed[id] = false
	}
}

// executorNamespaces are those that steps read or write in the name of an executor.
func executorNamespaces(steps []*step) []string {
	var namespaces []string
	for _, s := range steps {
		if s.how.executor != nil {
			namespaces = append(namespaces, s.at.Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// permitted asks whether the work's executor may do what a step does. A step that
// writes nothing asks once in a review, and what it was told before stands while
// that cannot be found out: then it is asked again after some time.
func (e *Engine) permitted(ctx context.Context, w *work, s *step, writes bool) (again time.Duration, err error) {
	if s.how.executor == nil {
		return 0, nil
	}
	sure, before := w.permits.confirmed[s.at.objectID]
	if sure && !writes {
		return 0, nil
	}
	obj, err := s.object(s.at, nil)
	if err != nil {
		return 0, err
	}
	err = e.executors.Check(ctx, s.request(s.how.executor, obj))
	switch {
	case err == nil:
		w.permits.confirmed[s.at.objectID] = true
	case isRefusal(err):
		delete(w.permits.confirmed, s.at.objectID)
		return w.denied.wait(), err
	case before && !writes:
		s.unasked = true
		return w.denied.wait(), nil
	}
	return 0, err
}
