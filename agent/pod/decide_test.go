// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import "testing"

func TestDecide(t *testing.T) {
	const uid, other = "hub-1", "hub-2"
	wants := func(change ...func(*demand)) *demand {
		d := &demand{uid: uid, grace: 30}
		for _, f := range change {
			f(d)
		}
		return d
	}
	seen := func(d *demand) { d.seen = true }
	ended := func(d *demand) { d.ended = true }
	deleting := func(d *demand) { d.deleting = true }
	refused := func(d *demand) { d.refused = true }
	cases := map[string]struct {
		reason string
		s      situation
		want   action
	}{
		"nothing is listed": {reason: "what is in the spoke is not known yet",
			s: situation{synced: true, want: wants(), told: true}, want: actRest},
		"new": {reason: "the hub wants it",
			s: situation{listed: true, want: wants(), told: true}, want: actCreate},
		"new, before the hub has told all": {reason: "what it wants it wants",
			s: situation{listed: true, want: wants(), told: true}, want: actCreate},
		"new, with a reference": {reason: "a pod without its ConfigMap would fail",
			s: situation{listed: true, synced: true, want: wants()}, want: actRest},
		"new and refused": {reason: "it can never be here",
			s: situation{listed: true, want: wants(refused), told: true}, want: actRefuse},
		"new and ended": {reason: "nothing is run twice",
			s: situation{listed: true, want: wants(ended), told: true}, want: actRetire},
		"new and deleted": {reason: "there is nothing to wait for",
			s: situation{listed: true, want: wants(deleting), told: true}, want: actGone},
		"was there before this process": {reason: "somebody deleted it in the spoke",
			s: situation{listed: true, want: wants(seen), told: true}, want: actLost},
		"was there": {reason: "somebody deleted it in the spoke",
			s: situation{listed: true, want: wants(), told: true, last: memory{hubUID: uid}}, want: actLost},
		"was deleted there, and the hub has heard of its end alone": {reason: "a kubelet says how, not why",
			s: situation{listed: true, want: wants(seen, ended), told: true, last: memory{hubUID: uid}}, want: actLost},
		"was there and had ended": {reason: "collectors of ended pods take nothing away",
			s: situation{listed: true, want: wants(), told: true, last: memory{hubUID: uid, ended: true}}, want: actRetire},
		"was there, refused now": {reason: "that it was there counts more",
			s: situation{listed: true, want: wants(seen, refused), told: true}, want: actLost},
		"another was there": {reason: "that one's end is not this one's",
			s: situation{listed: true, want: wants(), told: true, last: memory{hubUID: other}}, want: actCreate},
		"ended on the hub and gone": {reason: "the hub knows",
			s: situation{listed: true, want: wants(seen, ended), told: true}, want: actRetire},
		"deleted on the hub and gone": {reason: "the hub waits for it",
			s: situation{listed: true, want: wants(seen, ended, deleting), told: true}, want: actGone},

		"runs": {reason: "it is as it is wanted",
			s: situation{listed: true, want: wants(), live: &presence{hubUID: uid}, brought: true}, want: actRest},
		"runs, changed on the hub": {reason: "it follows",
			s: situation{listed: true, want: wants(), live: &presence{hubUID: uid}}, want: actUpdate},
		"has ended, changed on the hub": {reason: "nobody would see",
			s: situation{listed: true, want: wants(), live: &presence{hubUID: uid, ended: true}}, want: actRest},
		"ends in the spoke, changed on the hub": {reason: "nobody would see",
			s: situation{listed: true, want: wants(), live: &presence{hubUID: uid, deleting: true}}, want: actRest},
		"runs, refused now": {reason: "what is permitted no more was permitted once, and cannot be changed",
			s: situation{listed: true, want: wants(refused), live: &presence{hubUID: uid}}, want: actRest},
		"runs, deleted on the hub": {reason: "with the hub's grace",
			s: situation{listed: true, want: wants(deleting), live: &presence{hubUID: uid}, brought: true}, want: actEnd},
		"has ended, deleted on the hub": {reason: "it is of no use any more",
			s: situation{listed: true, want: wants(deleting), live: &presence{hubUID: uid, ended: true}}, want: actEnd},
		"ends with the same grace": {reason: "it was told",
			s: situation{listed: true, want: wants(deleting), live: &presence{hubUID: uid, deleting: true, grace: 30}}, want: actRest},
		"ends with a longer grace": {reason: "the hub has shortened it",
			s: situation{listed: true, want: wants(deleting), live: &presence{hubUID: uid, deleting: true, grace: 60}}, want: actEnd},
		"ends with a shorter grace": {reason: "no grace grows",
			s: situation{listed: true, want: wants(deleting), live: &presence{hubUID: uid, deleting: true, grace: 5}}, want: actRest},

		"another runs under the name": {reason: "the older ends first",
			s: situation{listed: true, want: wants(), told: true, live: &presence{hubUID: other}}, want: actRemove},
		"another ends under the name": {reason: "the name is free when it has",
			s: situation{listed: true, want: wants(), told: true, live: &presence{hubUID: other, deleting: true}}, want: actRest},

		"the hub has not told all": {reason: "it may still want it",
			s: situation{listed: true, live: &presence{hubUID: uid}}, want: actRest},
		"the hub does not know it": {reason: "it was forced out there",
			s: situation{listed: true, synced: true, live: &presence{hubUID: uid}}, want: actRemove},
		"the hub has withdrawn it": {reason: "that needs no list",
			s: situation{listed: true, withdrawn: true, live: &presence{hubUID: uid}}, want: actRemove},
		"the hub does not know it and it ends": {reason: "the kubelet ends it properly",
			s: situation{listed: true, synced: true, live: &presence{hubUID: uid, deleting: true}}, want: actRest},
		"the hub told what cannot be read": {reason: "it is not absent",
			s: situation{listed: true, synced: true, unreadable: true, live: &presence{hubUID: uid}}, want: actRest},
		"neither has it": {reason: "memory follows what is there",
			s: situation{listed: true}, want: actForget},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decide(tc.s); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
