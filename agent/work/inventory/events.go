// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import "time"

// noteEvent notes when an event came that the status of a work may have to tell of.
func (inv *Inventory) noteEvent(o *managedObject, at time.Time) {
	for _, c := range o.claims {
		if _, before := inv.firstEvents[c.work]; !before && !at.IsZero() {
			inv.firstEvents[c.work] = at
		}
	}
}

// TakeFirstEvent returns when the first event came that the status of a work has yet to tell
// of, zero when there was none, and forgets it.
func (inv *Inventory) TakeFirstEvent(work string) time.Time {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	at := inv.firstEvents[work]
	delete(inv.firstEvents, work)
	return at
}
