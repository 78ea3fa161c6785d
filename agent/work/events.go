// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import "time"

// noteEvent notes when an event came that the status of a work may have to tell of.
func (t *inventory) noteEvent(o *managedObject, at time.Time) {
	for _, c := range o.claims {
		if _, before := t.firstEvents[c.work]; !before && !at.IsZero() {
			t.firstEvents[c.work] = at
		}
	}
}

// takeFirstEvent returns when the first event came that the status of a work has yet to tell
// of, zero when there was none, and forgets it.
func (t *inventory) takeFirstEvent(work string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.firstEvents[work]
	delete(t.firstEvents, work)
	return at
}
