// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

// requeue names the works that a change of the inventory concerns. Whoever made the
// change queues them.
type requeue struct {
	// works are queued for their executors, statuses for their status alone.
	works, statuses []string
}

func (r *requeue) addWork(work string) { r.works = append(r.works, work) }

// addWorks adds the works of an object, which compare it with what their anchors list.
func (r *requeue) addWorks(o *managedObject) {
	for _, c := range o.claims {
		r.addWork(c.work)
	}
}

// addPassive marks an object that came or went as drifted for the works that list it
// without writing it.
func (r *requeue) addPassive(o *managedObject) {
	for i := range o.claims {
		if c := &o.claims[i]; c.desired.isPassive && !c.desired.isOwner {
			c.hasDrifted = true
			r.addWork(c.work)
		}
	}
}

func (r *requeue) addStatuses(o *managedObject) {
	for _, c := range o.claims {
		r.statuses = append(r.statuses, c.work)
	}
}
