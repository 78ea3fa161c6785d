// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

// Requeue names the works that a change of the inventory concerns. Whoever made the
// change queues them.
type Requeue struct {
	// Works are queued for their executors, statuses for their status alone.
	Works, Statuses []string
}

func (r *Requeue) addWork(work string) { r.Works = append(r.Works, work) }

// addWorks adds the works of an object, which compare it with what their anchors list.
func (r *Requeue) addWorks(o *managedObject) {
	for _, c := range o.claims {
		r.addWork(c.work)
	}
}

// addPassive marks an object that came or went as drifted for the works that list it
// without writing it.
func (r *Requeue) addPassive(o *managedObject) {
	for i := range o.claims {
		if c := &o.claims[i]; c.desired.IsPassive && !c.desired.IsOwner {
			c.hasDrifted = true
			r.addWork(c.work)
		}
	}
}

func (r *Requeue) addStatuses(o *managedObject) {
	for _, c := range o.claims {
		r.Statuses = append(r.Statuses, c.work)
	}
}
