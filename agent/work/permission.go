// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import "time"

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
)

// untilAskedAgain is how long a refusal stands before the question is put again.
func (w *work) untilAskedAgain() time.Duration {
	return backoff(int(w.denied.Load()), permissionLag, permissionRetry)
}

// judged takes note of whether this run met a refusal.
func (w *work) judged() {
	if !w.denying {
		w.denied.Store(0)
		return
	}
	w.denied.Add(1)
}

// appeal has every work tried again that was refused a step, for what its executor
// may do has changed. It is not called unless the changes are watched.
func (e *Engine) appeal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, w := range e.works {
		if w.denied.Swap(0) > 0 {
			e.queue.AddAfter(key, appealPause)
		}
	}
}
