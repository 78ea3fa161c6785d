// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "k8s.io/apimachinery/pkg/types"

// action is the one thing to do about a pod.
type action string

const (
	// actRest: nothing, until something changes.
	actRest action = "rest"
	// actCreate: make the pod in the spoke, and what it needs before.
	actCreate action = "create"
	// actUpdate: bring the spoke's pod to what the hub wants now.
	actUpdate action = "update"
	// actEnd: delete the spoke's pod with the grace of the hub's deletion.
	actEnd action = "end"
	// actRemove: delete the spoke's pod, which the hub does not know, with its own
	// grace.
	actRemove action = "remove"
	// actKill: delete the spoke's pod with the least grace, as the hub's was deleted
	// without any.
	actKill action = "kill"
	// actGone: tell the hub that nothing is left.
	actGone action = "gone"
	// actLost: tell the hub that somebody else deleted the pod in the spoke.
	actLost action = "lost"
	// actRetire: nothing runs for the pod any more, and the hub knows.
	actRetire action = "retire"
	// actRefuse: tell the hub that such a pod cannot be here.
	actRefuse action = "refuse"
	// actForget: neither side has the pod.
	actForget action = "forget"
)

// situation is what is known about a pod at one moment.
type situation struct {
	// listed: the spoke's pods are known. synced: the hub has told all it wants.
	listed, synced bool
	// want is nil when the hub did not tell of such a pod. withdrawn: it told that
	// there is none. unreadable: it told, and we do not understand.
	want                  *demand
	withdrawn, unreadable bool
	// live is nil while there is none in the spoke.
	live *presence
	// last is what was last seen in the spoke under this name.
	last memory
	// told: the hub has told of all that the pod refers to.
	told bool
	// brought: the spoke's pod is as the hub wants it.
	brought bool
	// forced: the hub's pod that the spoke's runs for was deleted there without a grace,
	// and is not waited for. It says nothing of another pod of that name.
	forced bool
}

// demand is what the hub wants.
type demand struct {
	uid                   types.UID
	seen, ended, deleting bool
	// grace of the deletion, in seconds.
	grace int64
	// refused: the pod is not one that the spoke takes.
	refused bool
}

// presence is a pod of ours in the spoke. It is comparable: what does not change it
// changes no decision.
type presence struct {
	// hubUID is that of the hub's pod that it runs for.
	uid, hubUID     types.UID
	ended, deleting bool
	// grace of the deletion, in seconds.
	grace int64
}

// memory is of a pod that was seen in the spoke.
type memory struct {
	uid, hubUID types.UID
	// ended: by itself, before anybody deleted it.
	ended bool
}

// decide is the heart of the engine.
func decide(s situation) action {
	switch {
	case !s.listed:
		return actRest
	case s.want == nil && s.live == nil:
		return actForget
	case s.want == nil:
		return decideUnknown(s)
	case s.live == nil:
		return decideAbsent(s)
	case s.live.hubUID != s.want.uid:
		// The name is free when the pod before has ended properly.
		return removal(s)
	default:
		return decidePresent(s)
	}
}

// decideUnknown: a pod of the spoke that the hub does not tell of is one too many
// only when the hub has told all.
func decideUnknown(s situation) action {
	if !s.forced && (s.unreadable || !s.synced && !s.withdrawn) {
		return actRest
	}
	return removal(s)
}

// leastGrace is that of a pod that is deleted by force, in seconds. No grace at all would
// take the name from the spoke's API server while the containers still run.
const leastGrace = 1

// removal of a pod that the hub has no more. A grace that runs is shortened and not begun
// anew.
func removal(s situation) action {
	switch {
	case s.forced && (!s.live.deleting || s.live.grace > leastGrace):
		return actKill
	case s.live.deleting:
		return actRest
	default:
		return actRemove
	}
}

func decideAbsent(s situation) action {
	known := s.last.hubUID == s.want.uid
	switch {
	case s.want.deleting:
		return actGone
	case known && !s.last.ended:
		// Also when the hub has heard how it ended: not why.
		return actLost
	case s.want.ended, known:
		return actRetire
	case s.want.seen:
		return actLost
	case s.want.refused:
		return actRefuse
	case !s.told:
		return actRest
	default:
		return actCreate
	}
}

func decidePresent(s situation) action {
	switch {
	case s.want.deleting && (!s.live.deleting || s.want.grace < s.live.grace):
		return actEnd
	case s.live.deleting, s.live.ended, s.want.deleting, s.want.refused, s.brought:
		return actRest
	default:
		return actUpdate
	}
}
