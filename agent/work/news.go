// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import "time"

// happened notes when an event came that the status of a work may have to tell of.
func (t *table) happened(o *object, at time.Time) {
	for _, c := range o.claims {
		if _, before := t.since[c.work]; !before && !at.IsZero() {
			t.since[c.work] = at
		}
	}
}

// news returns when the first event came that the status of a work has yet to tell
// of, zero when there was none, and forgets it.
func (t *table) news(work string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.since[work]
	delete(t.since, work)
	return at
}
