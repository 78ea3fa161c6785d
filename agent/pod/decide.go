// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "k8s.io/apimachinery/pkg/types"

// action is the one thing to do about a pod.
type action string

const (
	// actNone: nothing, until something changes.
	actNone action = "rest"
	// actCreate: make the pod in the spoke, and what it needs before.
	actCreate action = "create"
	// actUpdate: bring the spoke's pod to what the hub wants now.
	actUpdate action = "update"
	// actDelete: delete the spoke's pod with the grace of the hub's deletion.
	actDelete action = "end"
	// actDeleteUnknown: delete the spoke's pod, which the hub does not know, with its own
	// grace.
	actDeleteUnknown action = "remove"
	// actDeleteForced: delete the spoke's pod with the least grace, as the hub's was deleted
	// without any.
	actDeleteForced action = "kill"
	// actReportGone: tell the hub that nothing is left.
	actReportGone action = "gone"
	// actReportLost: tell the hub that somebody else deleted the pod in the spoke.
	actReportLost action = "lost"
	// actReleaseObjects: nothing runs for the pod any more, and the hub knows.
	actReleaseObjects action = "retire"
	// actReportRefused: tell the hub that such a pod cannot be here.
	actReportRefused action = "refuse"
	// actForget: neither side has the pod.
	actForget action = "forget"
)

// decisionInput is what is known about a pod at one moment.
type decisionInput struct {
	// podsListed: the spoke's pods are known. synced: the hub has told all it wants.
	podsListed, hubSynced bool
	// desired is nil when the hub did not tell of such a pod. withdrawn: it told that
	// there is none. unreadable: it told, and we do not understand.
	desired               *desiredState
	withdrawn, unreadable bool
	// live is nil while there is none in the spoke.
	live *liveState
	// lastSeen is what was last seen in the spoke under this name.
	lastSeen lastSeen
	// objectsKnown: the hub has told of all that the pod refers to.
	objectsKnown bool
	// applied: the spoke's pod is as the hub wants it.
	applied bool
	// forceDeleted: the hub's pod that the spoke's runs for was deleted there without a grace,
	// and is not waited for. It says nothing of another pod of that name.
	forceDeleted bool
}

// desiredState is what the hub wants.
type desiredState struct {
	uid                              types.UID
	wasInCluster, hasEnded, deleting bool
	// grace of the deletion, in seconds.
	grace int64
	// isRefused: the pod is not one that the spoke takes.
	isRefused bool
}

// liveState is a pod of ours in the spoke. It is comparable: what does not change it
// changes no decision.
type liveState struct {
	// hubUID is that of the hub's pod that it runs for.
	uid, hubUID        types.UID
	hasEnded, deleting bool
	// grace of the deletion, in seconds.
	grace int64
}

// lastSeen is of a pod that was seen in the spoke.
type lastSeen struct {
	uid, hubUID types.UID
	// hasEnded: by itself, before anybody deleted it.
	hasEnded bool
}

// decide is the heart of the engine.
func decide(s decisionInput) action {
	switch {
	case !s.podsListed:
		return actNone
	case s.desired == nil && s.live == nil:
		return actForget
	case s.desired == nil:
		return decideUnknown(s)
	case s.live == nil:
		return decideAbsent(s)
	case s.live.hubUID != s.desired.uid:
		// The name is free when the pod before has ended properly.
		return decideRemoval(s)
	default:
		return decidePresent(s)
	}
}

// decideUnknown: a pod of the spoke that the hub does not tell of is one too many
// only when the hub has told all.
func decideUnknown(s decisionInput) action {
	if !s.forceDeleted && (s.unreadable || !s.hubSynced && !s.withdrawn) {
		return actNone
	}
	return decideRemoval(s)
}

// leastGrace is that of a pod that is deleted by force, in seconds. No grace at all would
// take the name from the spoke's API server while the containers still run.
const leastGrace = 1

// decideRemoval of a pod that the hub has no more. A grace that runs is shortened and not begun
// anew.
func decideRemoval(s decisionInput) action {
	switch {
	case s.forceDeleted && (!s.live.deleting || s.live.grace > leastGrace):
		return actDeleteForced
	case s.live.deleting:
		return actNone
	default:
		return actDeleteUnknown
	}
}

func decideAbsent(s decisionInput) action {
	known := s.lastSeen.hubUID == s.desired.uid
	switch {
	case s.desired.deleting:
		return actReportGone
	case known && !s.lastSeen.hasEnded:
		// Also when the hub has heard how it ended: not why.
		return actReportLost
	case s.desired.hasEnded, known:
		return actReleaseObjects
	case s.desired.wasInCluster:
		return actReportLost
	case s.desired.isRefused:
		return actReportRefused
	case !s.objectsKnown:
		return actNone
	default:
		return actCreate
	}
}

func decidePresent(s decisionInput) action {
	switch {
	case s.desired.deleting && (!s.live.deleting || s.desired.grace < s.live.grace):
		return actDelete
	case s.live.deleting, s.live.hasEnded, s.desired.deleting, s.desired.isRefused, s.applied:
		return actNone
	default:
		return actUpdate
	}
}
