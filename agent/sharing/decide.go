// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// deletionEvidence says how sure it is that an object was deleted which a side does not have.
type deletionEvidence int

const (
	// unproven: it is merely not there.
	unproven deletionEvidence = iota
	// accepted: it is not there, and few are; or the deletions were confirmed.
	accepted
	// observed: its deletion was seen.
	observed
)

// sideState is an object as one side has it.
type sideState struct {
	present bool
	// evidence is of an object that is not present; weighed: it was judged, if perhaps held;
	// awaits: more may be absent, and it is judged with that.
	evidence              deletionEvidence
	evaluated, awaitsList bool
	uid                   types.UID
	// version names raw, the content; nil where the record has the same.
	version string
	raw     []byte
	// size is that of the content, in bytes.
	size int
	// deleting: it is being deleted, and waits for its finalizers.
	deleting bool
	// unselected: the selector does not select it.
	unselected bool
}

// loadContent has the sight have its content, which it left to the record.
func (s *sideState) loadContent(r *record) {
	if s.present && s.raw == nil {
		s.raw = r.contentOf(s.version)
	}
}

// dropRecordedContent leaves the content to the record, if that has the same: it is not kept twice.
func (s *sideState) dropRecordedContent(r *record) {
	if s.raw != nil && r.contentOf(s.version) != nil {
		s.raw = nil
	}
}

func (s *sideState) isLive() bool { return s.present && !s.deleting }

// policy says how the two sides of an object are kept the same.
type policy struct {
	toSpoke, toHub bool
	winner         merge.Side
	adoptAny       bool
	// hubStatus and spokeStatus tell whether the status is a subresource there.
	hubStatus, spokeStatus bool
	// replaced: one of the two sides is another cluster than before, so that other UIDs
	// do not mean that objects were deleted.
	replaced bool
	schema   *merge.Schema
}

// isBothWays tells whether changes of both sides travel.
func (p policy) isBothWays() bool { return p.toSpoke && p.toHub }

// sourceSide is the side that is followed where one is.
func (p policy) sourceSide() merge.Side {
	if p.toSpoke {
		return merge.Hub
	}
	return merge.Spoke
}

// action is what a step does.
type action int

const (
	// doNothing: there is nothing to do, or not now.
	doNothing action = iota
	// recordInSync records that both sides are in step.
	recordInSync
	// deleteRecord drops the record.
	deleteRecord
	// writeObject makes one request for an object of Side.
	writeObject
	// deleteObject deletes the object of Side.
	deleteObject
	// reportCollision: the sides differ, and nothing says how they came to be.
	reportCollision
	// holdDeletion: a deletion that nothing proves.
	holdDeletion
)

// step is the next thing to do for an object: one request at most.
type step struct {
	action action
	side   merge.Side
	part   wire.SharedPart
	// from and to are the content of Side, before and after a write; from is nil in a
	// creation.
	from, to sharedobject.Content
	// next are the contents that are in step afterwards.
	next merge.States
	// isOneWay: what Side makes of the write is taken as it is, since its changes do not
	// travel.
	isOneWay bool
	// raw is to, encoded; of a write that is to be made.
	raw []byte
	// conflicts names the fields that the winner decided; fields, in a collision, those
	// that differ.
	conflicts, fields []string
}

// mergeInput is what a step is decided by.
type mergeInput struct {
	policy
	// record is nil when both sides were never in step.
	record *record
	// uncertainBase is the base that holds instead if the write of the side written was done,
	// whose outcome is not known; nil when all are.
	uncertainBase *merge.States
	uncertainSide merge.Side
	hub, spoke    sideState
}

// decide is the next step. It is a function of the question alone.
func (q mergeInput) decide() (step, error) {
	switch {
	case q.record != nil && (q.hub.unselected || q.spoke.unselected):
		return step{action: deleteRecord}, nil
	case q.record == nil || q.isOfReplacedObjects():
		return q.decideFirst()
	case q.isGone(merge.Hub) || q.isGone(merge.Spoke):
		return q.decideDeletion()
	default:
		return q.decideMerge()
	}
}

// isOfReplacedObjects tells whether the record is of other objects, of the cluster that was there
// before.
func (q mergeInput) isOfReplacedObjects() bool {
	return q.replaced && (q.hub.present && q.hub.uid != q.record.HubUID || q.spoke.present && q.spoke.uid != q.record.SpokeUID)
}

// decideFirst decides about an object that was never in step.
func (q mergeInput) decideFirst() (step, error) {
	switch {
	case q.hub.unselected || q.spoke.unselected:
		return step{}, nil // also where the hub says no more of it
	case q.hub.isLive() && q.spoke.isLive():
		return q.decideAdoption()
	case q.hub.isLive() && !q.spoke.present && q.toSpoke:
		return q.decideCreation(merge.Spoke, q.hub, q.spokeStatus)
	case q.spoke.isLive() && !q.hub.present && q.toHub:
		return q.decideCreation(merge.Hub, q.spoke, q.hubStatus)
	default:
		return step{}, nil
	}
}

// decideCreation creates on one side what the other has. Without its status, where that takes
// another request.
func (q mergeInput) decideCreation(side merge.Side, of sideState, subresource bool) (step, error) {
	to, err := sharedobject.Decode(of.raw)
	if err != nil {
		return step{}, err
	}
	if subresource {
		to = to.WithStatus(nil)
	}
	return step{
		action: writeObject, side: side, part: wire.PartObject, to: to, isOneWay: !q.isBothWays(),
		next: merge.States{Hub: to, Spoke: to},
	}, nil
}

// decideAdoption decides about an object that both sides had before.
func (q mergeInput) decideAdoption() (step, error) {
	hub, spoke, err := q.decodeContents()
	if err != nil {
		return step{}, err
	}
	if areEquivalent(hub, spoke) {
		base := merge.States{Hub: hub, Spoke: spoke}
		if !equality.Semantic.DeepEqual(hub["status"], spoke["status"]) {
			base = merge.States{Hub: hub.WithStatus(nil), Spoke: spoke.WithStatus(nil)}
		}
		return step{action: recordInSync, next: base}, nil
	}
	if q.adoptAny {
		return q.mergeContents(merge.States{}, hub, spoke)
	}
	fields, err := q.schema.Differences(hub, spoke)
	return step{action: reportCollision, fields: fields}, err
}

// areEquivalent tells whether two contents can be of one object: a status that one side has not
// written yet is no difference.
func areEquivalent(hub, spoke sharedobject.Content) bool {
	h, hasHub := hub.Status()
	s, hasSpoke := spoke.Status()
	if hasHub && hasSpoke && !equality.Semantic.DeepEqual(h, s) {
		return false
	}
	return equality.Semantic.DeepEqual(hub.WithStatus(nil), spoke.WithStatus(nil))
}

func (q mergeInput) decodeContents() (hub, spoke sharedobject.Content, err error) {
	if hub, err = sharedobject.Decode(q.hub.raw); err != nil {
		return nil, nil, fmt.Errorf("hub: %w", err)
	}
	if spoke, err = sharedobject.Decode(q.spoke.raw); err != nil {
		return nil, nil, fmt.Errorf("cluster: %w", err)
	}
	return hub, spoke, nil
}

// side is that of a side.
func (q mergeInput) side(side merge.Side) sideState {
	if side == merge.Hub {
		return q.hub
	}
	return q.spoke
}

// isGone tells whether a side has the object of the record no more.
func (q mergeInput) isGone(side merge.Side) bool {
	uid := q.record.HubUID
	if side == merge.Spoke {
		uid = q.record.SpokeUID
	}
	s := q.side(side)
	return !s.present || s.deleting || s.uid != uid
}

// decideDeletion decides about an object that was in step, and is gone on one side at least.
func (q mergeInput) decideDeletion() (step, error) {
	hub, spoke := q.isGone(merge.Hub), q.isGone(merge.Spoke)
	switch {
	case hub && spoke:
		if q.hub.present && q.hub.deleting || q.spoke.present && q.spoke.deleting {
			return step{}, nil
		}
		return step{action: deleteRecord}, nil
	case hub:
		return q.propagateDeletion(merge.Hub, q.toSpoke, q.toHub)
	default:
		return q.propagateDeletion(merge.Spoke, q.toHub, q.toSpoke)
	}
}

// conflictDeletion is what a conflict is about when one side has deleted the object and
// the other has changed it.
const conflictDeletion = "deletion"

// propagateDeletion decides what becomes of an object that side has no more: the deletion travels,
// or it is undone where the other way travels.
func (q mergeInput) propagateDeletion(side merge.Side, travels, undone bool) (step, error) {
	s, other := q.side(side), otherSide(side)
	switch {
	case !travels && s.deleting:
		return step{}, nil // it is made again once it is gone
	case !travels:
		return step{action: deleteRecord}, nil
	case !s.present && s.evidence == unproven:
		return step{action: holdDeletion, side: side}, nil
	}
	var conflicts []string
	if undone && q.hasChanged(other) {
		conflicts = []string{conflictDeletion}
	}
	if conflicts == nil || q.winner == side {
		return step{action: deleteObject, side: other, conflicts: conflicts}, nil
	}
	if s.deleting {
		return step{}, nil
	}
	return step{action: deleteRecord, conflicts: conflicts}, nil
}

// hasChanged tells whether a side has another content than the record.
func (q mergeInput) hasChanged(side merge.Side) bool {
	raw := q.record.Base.Hub
	if side == merge.Spoke && q.record.Base.Spoke != nil {
		raw = q.record.Base.Spoke
	}
	return sharedobject.Version(raw) != q.side(side).version
}

func otherSide(side merge.Side) merge.Side {
	if side == merge.Hub {
		return merge.Spoke
	}
	return merge.Hub
}

// decideMerge decides about an object that both sides have.
func (q mergeInput) decideMerge() (step, error) {
	if q.uncertainBase == nil && !q.hasChanged(merge.Hub) && !q.hasChanged(merge.Spoke) {
		return step{}, nil
	}
	hub, spoke, err := q.decodeContents()
	if err != nil {
		return step{}, err
	}
	base, err := q.record.Base.decode()
	if err != nil {
		return step{}, err
	}
	return q.mergeContents(base, hub, spoke)
}

// mergeContents decides what both sides become, given what they were.
func (q mergeInput) mergeContents(base merge.States, hub, spoke sharedobject.Content) (step, error) {
	switch {
	case q.uncertainBase != nil && q.isBothWays():
		return q.mergeUncertain(base, hub, spoke)
	case q.isBothWays():
		return q.mergeBothWays(base, hub, spoke)
	default:
		return q.mergeOneWay(base, hub, spoke)
	}
}
