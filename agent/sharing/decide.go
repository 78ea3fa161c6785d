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

// absence says how sure it is that an object was deleted which a side does not have.
type absence int

const (
	// unproven: it is merely not there.
	unproven absence = iota
	// judged: it is not there, and few are; or the deletions were confirmed.
	judged
	// proven: its deletion was seen.
	proven
)

// sight is an object as one side has it.
type sight struct {
	present bool
	// absence is of an object that is not present; weighed: it was judged, if perhaps held;
	// awaits: more may be absent, and it is judged with that.
	absence         absence
	weighed, awaits bool
	uid             types.UID
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

// load has the sight have its content, which it left to the record.
func (s *sight) load(r *record) {
	if s.present && s.raw == nil {
		s.raw = r.content(s.version)
	}
}

// leave leaves the content to the record, if that has the same: it is not kept twice.
func (s *sight) leave(r *record) {
	if s.raw != nil && r.content(s.version) != nil {
		s.raw = nil
	}
}

func (s *sight) live() bool { return s.present && !s.deleting }

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

// both tells whether changes of both sides travel.
func (p policy) both() bool { return p.toSpoke && p.toHub }

// source is the side that is followed where one is.
func (p policy) source() merge.Side {
	if p.toSpoke {
		return merge.Hub
	}
	return merge.Spoke
}

// deed is what a step does.
type deed int

const (
	// rest: there is nothing to do, or not now.
	rest deed = iota
	// adopt records that both sides are in step.
	adopt
	// forget drops the record.
	forget
	// write makes one request for an object of Side.
	write
	// remove deletes the object of Side.
	remove
	// collide: the sides differ, and nothing says how they came to be.
	collide
	// held: a deletion that nothing proves.
	held
)

// step is the next thing to do for an object: one request at most.
type step struct {
	do   deed
	side merge.Side
	part wire.SharedPart
	// from and to are the content of Side, before and after a write; from is nil in a
	// creation.
	from, to sharedobject.Content
	// next are the contents that are in step afterwards.
	next merge.States
	// follows: what Side makes of the write is taken as it is, since its changes do not
	// travel.
	follows bool
	// raw is to, encoded; of a write that is to be made.
	raw []byte
	// conflicts names the fields that the winner decided; fields, in a collision, those
	// that differ.
	conflicts, fields []string
}

// question is what a step is decided by.
type question struct {
	policy
	// record is nil when both sides were never in step.
	record *record
	// unsure is the base that holds instead if the write of the side written was done,
	// whose outcome is not known; nil when all are.
	unsure     *merge.States
	written    merge.Side
	hub, spoke sight
}

// decide is the next step. It is a function of the question alone.
func (q question) decide() (step, error) {
	switch {
	case q.record != nil && (q.hub.unselected || q.spoke.unselected):
		return step{do: forget}, nil
	case q.record == nil || q.ofReplaced():
		return q.first()
	case q.gone(merge.Hub) || q.gone(merge.Spoke):
		return q.deletion()
	default:
		return q.merge()
	}
}

// ofReplaced tells whether the record is of other objects, of the cluster that was there
// before.
func (q question) ofReplaced() bool {
	return q.replaced && (q.hub.present && q.hub.uid != q.record.HubUID || q.spoke.present && q.spoke.uid != q.record.SpokeUID)
}

// first decides about an object that was never in step.
func (q question) first() (step, error) {
	switch {
	case q.hub.unselected || q.spoke.unselected:
		return step{}, nil // also where the hub says no more of it
	case q.hub.live() && q.spoke.live():
		return q.adoption()
	case q.hub.live() && !q.spoke.present && q.toSpoke:
		return q.creation(merge.Spoke, q.hub, q.spokeStatus)
	case q.spoke.live() && !q.hub.present && q.toHub:
		return q.creation(merge.Hub, q.spoke, q.hubStatus)
	default:
		return step{}, nil
	}
}

// creation creates on one side what the other has. Without its status, where that takes
// another request.
func (q question) creation(side merge.Side, of sight, subresource bool) (step, error) {
	to, err := sharedobject.Decode(of.raw)
	if err != nil {
		return step{}, err
	}
	if subresource {
		to = to.WithStatus(nil)
	}
	return step{
		do: write, side: side, part: wire.PartObject, to: to, follows: !q.both(),
		next: merge.States{Hub: to, Spoke: to},
	}, nil
}

// adoption decides about an object that both sides had before.
func (q question) adoption() (step, error) {
	hub, spoke, err := q.contents()
	if err != nil {
		return step{}, err
	}
	if alike(hub, spoke) {
		base := merge.States{Hub: hub, Spoke: spoke}
		if !equality.Semantic.DeepEqual(hub["status"], spoke["status"]) {
			base = merge.States{Hub: hub.WithStatus(nil), Spoke: spoke.WithStatus(nil)}
		}
		return step{do: adopt, next: base}, nil
	}
	if q.adoptAny {
		return q.combine(merge.States{}, hub, spoke)
	}
	fields, err := q.schema.Differences(hub, spoke)
	return step{do: collide, fields: fields}, err
}

// alike tells whether two contents can be of one object: a status that one side has not
// written yet is no difference.
func alike(hub, spoke sharedobject.Content) bool {
	h, hasHub := hub.Status()
	s, hasSpoke := spoke.Status()
	if hasHub && hasSpoke && !equality.Semantic.DeepEqual(h, s) {
		return false
	}
	return equality.Semantic.DeepEqual(hub.WithStatus(nil), spoke.WithStatus(nil))
}

func (q question) contents() (hub, spoke sharedobject.Content, err error) {
	if hub, err = sharedobject.Decode(q.hub.raw); err != nil {
		return nil, nil, fmt.Errorf("hub: %w", err)
	}
	if spoke, err = sharedobject.Decode(q.spoke.raw); err != nil {
		return nil, nil, fmt.Errorf("cluster: %w", err)
	}
	return hub, spoke, nil
}

// sight is that of a side.
func (q question) sight(side merge.Side) sight {
	if side == merge.Hub {
		return q.hub
	}
	return q.spoke
}

// gone tells whether a side has the object of the record no more.
func (q question) gone(side merge.Side) bool {
	uid := q.record.HubUID
	if side == merge.Spoke {
		uid = q.record.SpokeUID
	}
	s := q.sight(side)
	return !s.present || s.deleting || s.uid != uid
}

// deletion decides about an object that was in step, and is gone on one side at least.
func (q question) deletion() (step, error) {
	hub, spoke := q.gone(merge.Hub), q.gone(merge.Spoke)
	switch {
	case hub && spoke:
		if q.hub.present && q.hub.deleting || q.spoke.present && q.spoke.deleting {
			return step{}, nil
		}
		return step{do: forget}, nil
	case hub:
		return q.follow(merge.Hub, q.toSpoke, q.toHub)
	default:
		return q.follow(merge.Spoke, q.toHub, q.toSpoke)
	}
}

// conflictDeletion is what a conflict is about when one side has deleted the object and
// the other has changed it.
const conflictDeletion = "deletion"

// follow decides what becomes of an object that side has no more: the deletion travels,
// or it is undone where the other way travels.
func (q question) follow(side merge.Side, travels, undone bool) (step, error) {
	s, other := q.sight(side), other(side)
	switch {
	case !travels && s.deleting:
		return step{}, nil // it is made again once it is gone
	case !travels:
		return step{do: forget}, nil
	case !s.present && s.absence == unproven:
		return step{do: held, side: side}, nil
	}
	var conflicts []string
	if undone && q.changed(other) {
		conflicts = []string{conflictDeletion}
	}
	if conflicts == nil || q.winner == side {
		return step{do: remove, side: other, conflicts: conflicts}, nil
	}
	if s.deleting {
		return step{}, nil
	}
	return step{do: forget, conflicts: conflicts}, nil
}

// changed tells whether a side has another content than the record.
func (q question) changed(side merge.Side) bool {
	raw := q.record.Base.Hub
	if side == merge.Spoke && q.record.Base.Spoke != nil {
		raw = q.record.Base.Spoke
	}
	return sharedobject.Version(raw) != q.sight(side).version
}

func other(side merge.Side) merge.Side {
	if side == merge.Hub {
		return merge.Spoke
	}
	return merge.Hub
}

// merge decides about an object that both sides have.
func (q question) merge() (step, error) {
	if q.unsure == nil && !q.changed(merge.Hub) && !q.changed(merge.Spoke) {
		return step{}, nil
	}
	hub, spoke, err := q.contents()
	if err != nil {
		return step{}, err
	}
	base, err := q.record.Base.decode()
	if err != nil {
		return step{}, err
	}
	return q.combine(base, hub, spoke)
}

// combine decides what both sides become, given what they were.
func (q question) combine(base merge.States, hub, spoke sharedobject.Content) (step, error) {
	switch {
	case q.unsure != nil && q.both():
		return q.combineUnsure(base, hub, spoke)
	case q.both():
		return q.combineBoth(base, hub, spoke)
	default:
		return q.repair(base, hub, spoke)
	}
}
