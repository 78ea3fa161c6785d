// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "testing"

func TestDecide(t *testing.T) {
	const uid, other = "hub-1", "hub-2"
	wants := func(change ...func(*desiredState)) *desiredState {
		d := &desiredState{uid: uid, grace: 30}
		for _, f := range change {
			f(d)
		}
		return d
	}
	seen := func(d *desiredState) { d.wasInCluster = true }
	ended := func(d *desiredState) { d.hasEnded = true }
	deleting := func(d *desiredState) { d.deleting = true }
	refused := func(d *desiredState) { d.isRefused = true }
	cases := map[string]struct {
		reason string
		s      decisionInput
		want   action
	}{
		"nothing is listed": {reason: "what is in the spoke is not known yet",
			s: decisionInput{hubSynced: true, desired: wants(), objectsKnown: true}, want: actNone},
		"new": {reason: "the hub wants it",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true}, want: actCreate},
		"new, before the hub has told all": {reason: "what it wants it wants",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true}, want: actCreate},
		"new, with a reference": {reason: "a pod without its ConfigMap would fail",
			s: decisionInput{podsListed: true, hubSynced: true, desired: wants()}, want: actNone},
		"new and refused": {reason: "it can never be here",
			s: decisionInput{podsListed: true, desired: wants(refused), objectsKnown: true}, want: actReportRefused},
		"new and ended": {reason: "nothing is run twice",
			s: decisionInput{podsListed: true, desired: wants(ended), objectsKnown: true}, want: actReleaseObjects},
		"new and deleted": {reason: "there is nothing to wait for",
			s: decisionInput{podsListed: true, desired: wants(deleting), objectsKnown: true}, want: actReportGone},
		"was there before this process": {reason: "somebody deleted it in the spoke",
			s: decisionInput{podsListed: true, desired: wants(seen), objectsKnown: true}, want: actReportLost},
		"was there": {reason: "somebody deleted it in the spoke",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true, lastSeen: lastSeen{hubUID: uid}}, want: actReportLost},
		"was deleted there, and the hub has heard of its end alone": {reason: "a kubelet says how, not why",
			s: decisionInput{podsListed: true, desired: wants(seen, ended), objectsKnown: true, lastSeen: lastSeen{hubUID: uid}}, want: actReportLost},
		"was there and had ended": {reason: "collectors of ended pods take nothing away",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true, lastSeen: lastSeen{hubUID: uid, hasEnded: true}}, want: actReleaseObjects},
		"was there, refused now": {reason: "that it was there counts more",
			s: decisionInput{podsListed: true, desired: wants(seen, refused), objectsKnown: true}, want: actReportLost},
		"another was there": {reason: "that one's end is not this one's",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true, lastSeen: lastSeen{hubUID: other}}, want: actCreate},
		"ended on the hub and gone": {reason: "the hub knows",
			s: decisionInput{podsListed: true, desired: wants(seen, ended), objectsKnown: true}, want: actReleaseObjects},
		"deleted on the hub and gone": {reason: "the hub waits for it",
			s: decisionInput{podsListed: true, desired: wants(seen, ended, deleting), objectsKnown: true}, want: actReportGone},

		"runs": {reason: "it is as it is wanted",
			s: decisionInput{podsListed: true, desired: wants(), live: &liveState{hubUID: uid}, applied: true}, want: actNone},
		"runs, changed on the hub": {reason: "it follows",
			s: decisionInput{podsListed: true, desired: wants(), live: &liveState{hubUID: uid}}, want: actUpdate},
		"has ended, changed on the hub": {reason: "nobody would see",
			s: decisionInput{podsListed: true, desired: wants(), live: &liveState{hubUID: uid, hasEnded: true}}, want: actNone},
		"ends in the spoke, changed on the hub": {reason: "nobody would see",
			s: decisionInput{podsListed: true, desired: wants(), live: &liveState{hubUID: uid, deleting: true}}, want: actNone},
		"runs, refused now": {reason: "what is permitted no more was permitted once, and cannot be changed",
			s: decisionInput{podsListed: true, desired: wants(refused), live: &liveState{hubUID: uid}}, want: actNone},
		"runs, deleted on the hub": {reason: "with the hub's grace",
			s: decisionInput{podsListed: true, desired: wants(deleting), live: &liveState{hubUID: uid}, applied: true}, want: actDelete},
		"has ended, deleted on the hub": {reason: "it is of no use any more",
			s: decisionInput{podsListed: true, desired: wants(deleting), live: &liveState{hubUID: uid, hasEnded: true}}, want: actDelete},
		"ends with the same grace": {reason: "it was told",
			s: decisionInput{podsListed: true, desired: wants(deleting), live: &liveState{hubUID: uid, deleting: true, grace: 30}}, want: actNone},
		"ends with a longer grace": {reason: "the hub has shortened it",
			s: decisionInput{podsListed: true, desired: wants(deleting), live: &liveState{hubUID: uid, deleting: true, grace: 60}}, want: actDelete},
		"ends with a shorter grace": {reason: "no grace grows",
			s: decisionInput{podsListed: true, desired: wants(deleting), live: &liveState{hubUID: uid, deleting: true, grace: 5}}, want: actNone},

		"another runs under the name": {reason: "the older ends first",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true, live: &liveState{hubUID: other}}, want: actDeleteUnknown},
		"another ends under the name": {reason: "the name is free when it has",
			s: decisionInput{podsListed: true, desired: wants(), objectsKnown: true, live: &liveState{hubUID: other, deleting: true}}, want: actNone},

		"the hub has not told all": {reason: "it may still want it",
			s: decisionInput{podsListed: true, live: &liveState{hubUID: uid}}, want: actNone},
		"the hub does not know it": {reason: "it was forced out there",
			s: decisionInput{podsListed: true, hubSynced: true, live: &liveState{hubUID: uid}}, want: actDeleteUnknown},
		"the hub has withdrawn it": {reason: "that needs no list",
			s: decisionInput{podsListed: true, withdrawn: true, live: &liveState{hubUID: uid}}, want: actDeleteUnknown},
		"the hub does not know it and it ends": {reason: "the kubelet ends it properly",
			s: decisionInput{podsListed: true, hubSynced: true, live: &liveState{hubUID: uid, deleting: true}}, want: actNone},
		"the hub told what cannot be read": {reason: "it is not absent",
			s: decisionInput{podsListed: true, hubSynced: true, unreadable: true, live: &liveState{hubUID: uid}}, want: actNone},
		"neither has it": {reason: "memory follows what is there",
			s: decisionInput{podsListed: true}, want: actForget},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decide(tc.s); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
