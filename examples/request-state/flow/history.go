// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"slices"
	"time"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
)

// NewEntry says that a step was entered at a time.
func NewEntry(step Step, at time.Time) v1.HistoryEntry {
	return v1.HistoryEntry{Job: step.Job, State: step.State, Timestamp: at.UTC().Format(time.RFC3339Nano)}
}

// History returns the history of a request that enters a step now: that of before,
// with an entry for each of the step in which the request is and the one that it
// enters, unless they have one. Entries of before are never changed, so that doing a
// step twice leaves what doing it once does.
//
// The step in which the request is lacks its entry where a request was created, since
// a definition with the status subresource drops the status of a new object, and where
// somebody changed the spec by hand.
func History(r *v1.RequestState, next Step, now time.Time) []v1.HistoryEntry {
	since := now
	if len(r.Status.History) == 0 && !r.CreationTimestamp.IsZero() {
		since = r.CreationTimestamp.Time
	}
	history := slices.Clone(r.Status.History)
	history = record(history, At(r), since)
	return record(history, next, now)
}

func record(history []v1.HistoryEntry, step Step, at time.Time) []v1.HistoryEntry {
	if slices.ContainsFunc(history, func(e v1.HistoryEntry) bool { return e.Job == step.Job && e.State == step.State }) {
		return history
	}
	return append(history, NewEntry(step, at))
}
