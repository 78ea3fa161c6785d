// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
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
	// appealPause gathers the changes of one grant: a role and its binding.
	appealPause = 100 * time.Millisecond
	// appealSpace is between two appeals of a work: roles that change without end
	// are not as many questions.
	appealSpace = 10 * time.Second
)

// denied are the refusals of one work that wait for a right.
type denied struct {
	mu sync.Mutex
	// All below are guarded by mu.
	// runs in a row that were refused a step, and the namespaces of the last one's.
	runs       int
	namespaces []string
	// appealed is when a change of rights has, or will have, the work tried again.
	// lagging: the next refusal may be from before that change.
	appealed time.Time
	lagging  bool
}

// refusedIn are the namespaces of the steps that the executor may not do.
func refusedIn(steps []*step) []string {
	var namespaces []string
	for _, s := range steps {
		if isRefusal(s.err) {
			namespaces = append(namespaces, s.at.Namespace)
		}
	}
	return namespaces
}

// wait is how long a refusal stands before the question is put again.
func (d *denied) wait() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lagging {
		return backoff(0, permissionLag, permissionRetry)
	}
	return backoff(d.runs, permissionLag, permissionRetry)
}

// judge takes note of the namespaces in which a run was refused steps.
func (d *denied) judge(namespaces []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.namespaces = namespaces
	d.lagging = d.lagging && time.Now().Before(d.appealed) // that attempt is still to come
	if len(namespaces) == 0 {
		d.runs = 0
		return
	}
	d.runs++
}

// appeal tells when to try again, and whether that is worth it, once rights have
// changed in a namespace, or everywhere.
func (d *denied) appeal(namespace string, now time.Time) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	concerned := len(d.namespaces) > 0 && (namespace == "" || slices.Contains(d.namespaces, namespace))
	if !concerned || now.Before(d.appealed) {
		return 0, false
	}
	wait := max(appealPause, d.appealed.Add(appealSpace).Sub(now))
	d.appealed, d.lagging = now.Add(wait), true
	return wait, true
}

// appeal has the works tried again that were refused a step in a namespace, or
// anywhere, for what executors may do there has changed. It is not called unless the
// changes are watched.
func (e *Engine) appeal(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for key, w := range e.works {
		if wait, ok := w.denied.appeal(namespace, now); ok {
			e.queue.AddAfter(key, wait)
		}
	}
}
