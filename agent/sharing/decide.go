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

// deletionEvidence is how certain it is that an absent object was deleted.
type deletionEvidence int

const (
	// unproven: the object is absent, and nothing shows why.
	unproven deletionEvidence = iota
	// accepted: few objects are absent, or a user has confirmed their deletion.
	accepted
	// observed: a watch has reported the deletion.
	observed
)

// sideState is an object as one side has it.
type sideState struct {
	present bool
	// evidence is of an object that is not present. evaluated: evaluateAbsent has decided, or
	// held it. awaitsList: more may be absent, and are evaluated together with it.
	evidence              deletionEvidence
	evaluated, awaitsList bool
	uid                   types.UID
	// version is the hash of raw, the content; raw is nil where the record has the same.
	version string
	raw     []byte
	// size is the size of the content in bytes.
	size int
	// deleting: it is being deleted, and waits for its finalizers.
	deleting bool
	// unselected: the selector does not select it.
	unselected bool
}

// loadContent takes the content from the record, if it was dropped.
func (s *sideState) loadContent(r *record) {
	if s.present && s.raw == nil {
		s.raw = r.contentOf(s.version)
	}
}

// dropRecordedContent drops a content that the record has, too.
func (s *sideState) dropRecordedContent(r *record) {
	if s.raw != nil && r.contentOf(s.version) != nil {
		s.raw = nil
	}
}

func (s *sideState) isLive() bool { return s.present && !s.deleting }

// policy is how a share keeps both sides of its objects in sync.
type policy struct {
	toSpoke, toHub bool
	winner         merge.Side
	adoptAny       bool
	// hubStatus and spokeStatus tell whether the status is a subresource there.
	hubStatus, spokeStatus bool
	// replaced: the hub or the cluster is another than before, so that other UIDs do not mean
	// that objects were deleted.
	replaced bool
	schema   *merge.Schema
}

// isBothWays reports whether changes of both sides are applied to the other.
func (p policy) isBothWays() bool { return p.toSpoke && p.toHub }

// sourceSide is the side whose changes are applied, where only one is.
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
	// recordInSync records that both sides are in sync.
	recordInSync
	// deleteRecord deletes the record.
	deleteRecord
	// writeObject creates or patches the object of side, with one request.
	writeObject
	// deleteObject deletes the object of side.
	deleteObject
	// reportCollision: the sides differ and were never in sync.
	reportCollision
	// holdDeletion: the deletion is unproven.
	holdDeletion
)

// step is the next thing to do for an object: one request at most.
type step struct {
	action action
	side   merge.Side
	part   wire.SharedPart
	// from and to are the content of side, before and after a write; from is nil for a
	// creation.
	from, to sharedobject.Content
	// next are the contents that are in sync afterwards.
	next merge.States
	// isOneWay: the result of the write is taken as it is, since changes of side are not
	// applied to the other side.
	isOneWay bool
	// raw is to, encoded.
	raw []byte
	// conflicts are the fields that the winner decided; fields are those that differ in a
	// collision.
	conflicts, fields []string
}

// mergeInput is what decides the next step.
type mergeInput struct {
	policy
	// record is nil when both sides were never in sync.
	record *record
	// uncertainBase is the base if the last write of uncertainSide was done; nil when the
	// outcomes of all writes are known.
	uncertainBase *merge.States
	uncertainSide merge.Side
	hub, spoke    sideState
}

// decide returns the next step. It is a pure function.
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

// isOfReplacedObjects reports whether the record is of objects of a cluster that was replaced.
func (q mergeInput) isOfReplacedObjects() bool {
	return q.replaced && (q.hub.present && q.hub.uid != q.record.HubUID || q.spoke.present && q.spoke.uid != q.record.SpokeUID)
}

// decideFirst decides about an object that was never in sync.
func (q mergeInput) decideFirst() (step, error) {
	switch {
	case q.hub.unselected || q.spoke.unselected:
		return step{}, nil // the hub may have sent no more than that
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

// decideCreation creates on one side what the other has, without the status where that takes
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

// decideAdoption decides about an object that both sides had before it was shared.
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

// areEquivalent reports whether two contents are equal but for a status that one side has not
// written yet.
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

// side returns the state of a side.
func (q mergeInput) side(side merge.Side) sideState {
	if side == merge.Hub {
		return q.hub
	}
	return q.spoke
}

// isGone reports whether a side no longer has the object of the record.
func (q mergeInput) isGone(side merge.Side) bool {
	uid := q.record.HubUID
	if side == merge.Spoke {
		uid = q.record.SpokeUID
	}
	s := q.side(side)
	return !s.present || s.deleting || s.uid != uid
}

// decideDeletion decides about an object that was in sync, and is gone on one side at least.
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

// conflictDeletion is the field of a conflict where one side has deleted the object and the
// other has changed it.
const conflictDeletion = "deletion"

// propagateDeletion deletes an object on the other side if deletions of side are applied there,
// or creates it again if the changes of the other side are.
func (q mergeInput) propagateDeletion(side merge.Side, travels, undone bool) (step, error) {
	s, other := q.side(side), otherSide(side)
	switch {
	case !travels && s.deleting:
		return step{}, nil // it is created again once it is gone
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

// hasChanged reports whether a side has another content than the record.
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

// mergeContents decides what both sides become, given their base.
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
