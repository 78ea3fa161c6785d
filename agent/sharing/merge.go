// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// A write applies the changes of one side to the other. Afterwards the base of the side that
// was read is what it had, and the base of the side that was written is the old one with
// these changes. Its own changes are left for the next write.

// mergeBothWays applies changes both ways, those of the hub first.
func (q mergeInput) mergeBothWays(base merge.States, hub, spoke sharedobject.Content) (step, error) {
	r, err := q.schema.Merge(base, merge.States{Hub: hub, Spoke: spoke}, q.winner)
	if err != nil {
		return step{}, err
	}
	if !isEqual(spoke, r.Spoke) {
		moved, err := q.schema.Apply(base.Hub, hub, base.Spoke)
		if err != nil {
			return step{}, err
		}
		s := step{side: merge.Spoke, from: spoke, to: r.Spoke, next: merge.States{Hub: hub, Spoke: moved}, conflicts: r.Conflicts}
		return q.splitStatus(s, base, q.spokeStatus), nil
	}
	if !isEqual(hub, r.Hub) {
		moved, err := q.schema.Apply(base.Spoke, spoke, base.Hub)
		if err != nil {
			return step{}, err
		}
		s := step{side: merge.Hub, from: hub, to: r.Hub, next: merge.States{Hub: moved, Spoke: spoke}, conflicts: r.Conflicts}
		return q.splitStatus(s, base, q.hubStatus), nil
	}
	return step{action: recordInSync, next: merge.States{Hub: hub, Spoke: spoke}, conflicts: r.Conflicts}, nil
}

// mergeUncertain does the same when it is not known whether the last write was done.
func (q mergeInput) mergeUncertain(base merge.States, hub, spoke sharedobject.Content) (step, error) {
	r, err := q.schema.MergeUncertain(base, *q.uncertainBase, merge.States{Hub: hub, Spoke: spoke}, q.uncertainSide, q.winner)
	if err != nil {
		return step{}, err
	}
	// Where one request is not enough, the next step starts from a base in which every field
	// that is left has changed on one side.
	left, err := q.schema.Apply(r.Spoke, hub, spoke)
	if err != nil {
		return step{}, err
	}
	rest := merge.States{Hub: left, Spoke: left}
	var s step
	switch {
	case !isEqual(spoke, r.Spoke):
		s = q.splitStatus(step{side: merge.Spoke, from: spoke, to: r.Spoke, next: merge.States{Hub: hub, Spoke: hub}}, rest, q.spokeStatus)
	case !isEqual(hub, r.Hub):
		s = q.splitStatus(step{side: merge.Hub, from: hub, to: r.Hub, next: merge.States{Hub: spoke, Spoke: spoke}}, rest, q.hubStatus)
	default:
		s = step{action: recordInSync, next: merge.States{Hub: hub, Spoke: spoke}}
	}
	s.conflicts = r.Conflicts // all of them: the next decision does not see them
	return s, nil
}

// mergeOneWay makes one side equal to the source. A status that is a subresource there belongs
// to the controller on that side: only changes of the source's status are applied.
func (q mergeInput) mergeOneWay(base merge.States, hub, spoke sharedobject.Content) (step, error) {
	s := step{side: merge.Spoke, from: spoke, isOneWay: true}
	before, after, onto, subresource := sharedobject.Content(base.Hub), hub, sharedobject.Content(base.Spoke), q.spokeStatus
	if q.sourceSide() == merge.Spoke {
		s.side, s.from = merge.Hub, hub
		before, after, onto, subresource = base.Spoke, spoke, base.Hub, q.hubStatus
	}
	if subresource {
		onto = onto.WithStatus(s.from)
	}
	to, err := q.schema.Apply(before, after, onto)
	if err != nil {
		return step{}, err
	}
	s.to, s.next = to, merge.States{Hub: hub, Spoke: to}
	if s.side == merge.Hub {
		s.next = merge.States{Hub: to, Spoke: spoke}
	}
	if isEqual(s.from, s.to) {
		return step{action: recordInSync, next: s.next}, nil
	}
	return q.splitStatus(s, base, subresource), nil
}

// splitStatus limits a write to one request. A status that is a subresource is written first:
// programs that take turns write the status before they hand over. The bases of the other
// fields stay until these are written.
func (q mergeInput) splitStatus(s step, base merge.States, subresource bool) step {
	s.action, s.part = writeObject, wire.PartObject
	if !subresource {
		return s
	}
	ofStatus := func(field string) bool { return strings.HasPrefix(field, ".status") }
	before, had := s.from.Status()
	after, has := s.to.Status()
	if had == has && equality.Semantic.DeepEqual(before, after) {
		return s // with the conflicts of the status that this side has won
	}
	s.part, s.to = wire.PartStatus, s.from.WithStatus(s.to)
	s.next.Hub = sharedobject.Content(base.Hub).WithStatus(s.next.Hub)
	s.next.Spoke = sharedobject.Content(base.Spoke).WithStatus(s.next.Spoke)
	s.conflicts = slices.DeleteFunc(s.conflicts, func(field string) bool { return !ofStatus(field) })
	return s
}

// statesAfter returns the contents that are in sync after a write with the result got.
func (s step) statesAfter(schema *merge.Schema, got sharedobject.Content) (merge.States, error) {
	next := s.next
	if isEqual(s.to, got) {
		return next, nil
	}
	of := &next.Hub
	if s.side == merge.Spoke {
		of = &next.Spoke
	}
	if s.isOneWay {
		*of = got
		return next, nil
	}
	// Fields that the definition drops are no change of that side; fields that it adds are.
	moved, err := schema.Apply(s.to, schema.Prune(s.to, got), *of)
	if err != nil {
		return next, err
	}
	*of = moved
	return next, nil
}

func isEqual(a, b map[string]any) bool { return equality.Semantic.DeepEqual(a, b) }
