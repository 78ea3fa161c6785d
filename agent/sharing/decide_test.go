// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/sharing/merge"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// at is an object of a side, with a content in JSON.
func at(uid, raw string, edits ...func(*sideState)) sideState {
	s := sideState{present: true, uid: types.UID("uid-" + uid), version: sharedobject.Version([]byte(raw)), raw: []byte(raw)}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func deleting(s *sideState)   { s.deleting = true }
func unselected(s *sideState) { s.unselected = true }

// lacks is a side without the object.
func lacks(a deletionEvidence) sideState { return sideState{evidence: a} }

// was is the record of the objects h and s, that had a content, or two.
func was(contents ...string) *record {
	r := &record{HubUID: "uid-h", SpokeUID: "uid-s", Base: encodedStates{Hub: []byte(contents[0])}}
	if len(contents) > 1 {
		r.Base.Spoke = []byte(contents[1])
	}
	return r
}

// told is a step in words.
func (s step) told() string {
	words := []string{map[action]string{
		doNothing: "rest", recordInSync: "adopt", deleteRecord: "forget", writeObject: "write", deleteObject: "remove", reportCollision: "collide", holdDeletion: "held",
	}[s.action]}
	if s.side != "" {
		words = append(words, string(s.side))
	}
	if s.part != "" {
		words = append(words, string(s.part))
	}
	if s.to != nil {
		words = append(words, text(s.to))
	}
	if s.next.Hub != nil {
		words = append(words, "then", text(s.next.Hub))
		if text(s.next.Hub) != text(s.next.Spoke) {
			words = append(words, text(s.next.Spoke))
		}
	}
	for _, field := range append(s.conflicts, s.fields...) {
		words = append(words, "!"+field)
	}
	return strings.Join(words, " ")
}

func text(c sharedobject.Content) string {
	raw, err := sharedobject.Encode(c)
	if err != nil {
		return fmt.Sprint(err)
	}
	return strings.NewReplacer(`"`, "", "metadata:", "m:", "spec:", "", "status:", "S:").Replace(string(raw))
}

var (
	bothHub   = policy{toSpoke: true, toHub: true, winner: merge.Hub, schema: &merge.Schema{}}
	bothSpoke = policy{toSpoke: true, toHub: true, winner: merge.Spoke, schema: &merge.Schema{}}
	toSpoke   = policy{toSpoke: true, winner: merge.Hub, schema: &merge.Schema{}}
	toHub     = policy{toHub: true, winner: merge.Hub, schema: &merge.Schema{}}
)

func (p policy) with(edit func(*policy)) policy {
	edit(&p)
	return p
}

func anyAdopted(p *policy) { p.adoptAny = true }
func replaced(p *policy)   { p.replaced = true }
func subresources(p *policy) {
	p.hubStatus, p.spokeStatus = true, true
}

// decision is a case of a table.
type decision struct {
	reason string
	policy policy
	record *record
	unsure *merge.States
	hub    sideState
	spoke  sideState
	want   string
}

func decideAll(t *testing.T, cases map[string]decision) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := mergeInput{policy: c.policy, record: c.record, uncertainBase: c.unsure, uncertainSide: merge.Spoke, hub: c.hub, spoke: c.spoke}.decide()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.told()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

const (
	a1   = `{"spec":{"a":"1"}}`
	a2   = `{"spec":{"a":"2"}}`
	a3   = `{"spec":{"a":"3"}}`
	a1b1 = `{"spec":{"a":"1","b":"1"}}`
	a2b1 = `{"spec":{"a":"2","b":"1"}}`
	a1S1 = `{"spec":{"a":"1"},"status":{"x":"1"}}`
	a1S2 = `{"spec":{"a":"1"},"status":{"x":"2"}}`
	a2S1 = `{"spec":{"a":"2"},"status":{"x":"1"}}`
	a2S2 = `{"spec":{"a":"2"},"status":{"x":"2"}}`
	a3S3 = `{"spec":{"a":"3"},"status":{"x":"3"}}`
)

func TestDecideFirstStep(t *testing.T) {
	decideAll(t, map[string]decision{
		"the hub's is created in the cluster": {
			reason: "it travels", policy: bothHub, hub: at("h", a1), spoke: lacks(unproven), want: "write Spoke Object {spec:{a:1}} then {spec:{a:1}}",
		},
		"the cluster's is created on the hub": {
			reason: "it travels", policy: bothHub, hub: lacks(unproven), spoke: at("s", a1), want: "write Hub Object {spec:{a:1}} then {spec:{a:1}}",
		},
		"a status is no part of the request that creates where it is a subresource": {
			reason: "an API server drops it", policy: bothHub.with(subresources), hub: at("h", a1S1), spoke: lacks(unproven), want: "write Spoke Object {spec:{a:1}} then {spec:{a:1}}",
		},
		"nothing is created against the direction": {
			reason: "the cluster is followed", policy: toHub, hub: at("h", a1), spoke: lacks(unproven), want: "rest",
		},
		"nothing is created on a hub that is followed": {
			reason: "the hub is followed", policy: toSpoke, hub: lacks(unproven), spoke: at("s", a1), want: "rest",
		},
		"one that is being deleted is not created": {
			reason: "it would be deleted next", policy: bothHub, hub: at("h", a1, deleting), spoke: lacks(unproven), want: "rest",
		},
		"one that is not selected is not created": {
			reason: "it is not shared", policy: bothHub, hub: at("h", a1, unselected), spoke: lacks(unproven), want: "rest",
		},
		"nothing is made of one that the hub has and does not select": {
			reason: "it is not shared, and the hub says no more of it", policy: bothHub,
			hub: sideState{unselected: true}, spoke: at("s", a1), want: "rest",
		},
		"those are not adopted of which one is not selected": {
			reason: "they are not shared, whatever they are", policy: bothHub.with(anyAdopted),
			hub: at("h", a1), spoke: at("s", a2, unselected), want: "rest",
		},
		"nothing is created beside one that is being deleted": {
			reason: "its name is taken", policy: bothHub, hub: at("h", a1), spoke: at("s", a1, deleting), want: "rest",
		},
		"equal ones are adopted": {
			reason: "nothing has to be decided", policy: bothHub, hub: at("h", a1), spoke: at("s", a1), want: "adopt then {spec:{a:1}}",
		},
		"a status that one side lacks is no difference": {
			reason: "who restores objects restores no status", policy: bothHub, hub: at("h", a1), spoke: at("s", a1S1), want: "adopt then {spec:{a:1}}",
		},
		"different ones collide": {
			reason: "nothing says which is right", policy: bothHub, hub: at("h", a1S1), spoke: at("s", a2S2), want: "collide !.spec.a !.status.x",
		},
		"different ones are adopted where that is asked for, as the hub has them": {
			reason: "the hub wins", policy: bothHub.with(anyAdopted), hub: at("h", a1), spoke: at("s", a2), want: "write Spoke Object {spec:{a:1}} then {spec:{a:1}} !.spec.a",
		},
		"different ones are adopted where that is asked for, as the cluster has them": {
			reason: "the cluster wins", policy: bothSpoke.with(anyAdopted), hub: at("h", a1), spoke: at("s", a2), want: "write Hub Object {spec:{a:2}} then {spec:{a:2}} !.spec.a",
		},
		"different ones are adopted as the side has them that is followed": {
			reason: "no change of the cluster travels", policy: toSpoke.with(anyAdopted), hub: at("h", a1b1), spoke: at("s", a2), want: "write Spoke Object {spec:{a:1,b:1}} then {spec:{a:1,b:1}}",
		},
		"equal ones of a cluster that was replaced are adopted": {
			reason: "the record is of other objects", policy: bothHub.with(replaced), record: was(a2), hub: at("h", a1), spoke: at("s2", a1), want: "adopt then {spec:{a:1}}",
		},
		"different ones of a cluster that was replaced collide": {
			reason: "the record is of other objects", policy: bothHub.with(replaced), record: was(a2), hub: at("h", a1), spoke: at("s2", a2), want: "collide !.spec.a",
		},
	})
}

func TestDecideAfterDeletion(t *testing.T) {
	decideAll(t, map[string]decision{
		"one on the hub travels": {
			reason: "it was seen", policy: bothHub, record: was(a1), hub: lacks(observed), spoke: at("s", a1), want: "remove Spoke",
		},
		"one in the cluster travels": {
			reason: "it was seen", policy: bothHub, record: was(a1), hub: at("h", a1), spoke: lacks(observed), want: "remove Hub",
		},
		"one that was judged travels": {
			reason: "few are absent", policy: bothHub, record: was(a1), hub: lacks(accepted), spoke: at("s", a1), want: "remove Spoke",
		},
		"one that nothing proves is held": {
			reason: "absent is not deleted", policy: bothHub, record: was(a1), hub: lacks(unproven), spoke: at("s", a1), want: "held Hub",
		},
		"one that waits for finalizers travels": {
			reason: "both sides may have finalizers", policy: bothHub, record: was(a1), hub: at("h", a1, deleting), spoke: at("s", a1), want: "remove Spoke",
		},
		"another object in place of the one that was there means its deletion": {
			reason: "nobody has changed the UID of an object", policy: bothHub, record: was(a1), hub: at("h2", a1), spoke: at("s", a1), want: "remove Spoke",
		},
		"the winner's beats a change, and that is told": {
			reason: "the change gets lost", policy: bothHub, record: was(a1), hub: lacks(observed), spoke: at("s", a2), want: "remove Spoke !deletion",
		},
		"the loser's is undone by a change, and that is told": {
			reason: "the deletion gets lost", policy: bothSpoke, record: was(a1), hub: lacks(observed), spoke: at("s", a2), want: "forget !deletion",
		},
		"the loser's is undone once the object is gone": {
			reason: "its name is taken", policy: bothSpoke, record: was(a1), hub: at("h", a1, deleting), spoke: at("s", a2), want: "rest",
		},
		"one of a side that follows is undone": {
			reason: "no change of the hub travels", policy: toHub, record: was(a1), hub: lacks(observed), spoke: at("s", a1), want: "forget",
		},
		"one of a side that follows is undone once the object is gone": {
			reason: "its name is taken", policy: toHub, record: was(a1), hub: at("h", a1, deleting), spoke: at("s", a1), want: "rest",
		},
		"one of the side that is followed beats a change": {
			reason: "no change of the cluster travels", policy: toSpoke, record: was(a1), hub: lacks(observed), spoke: at("s", a2), want: "remove Spoke",
		},
		"of both sides ends it": {
			reason: "nothing is left", policy: bothHub, record: was(a1), hub: lacks(unproven), spoke: lacks(observed), want: "forget",
		},
		"of both sides does not end while one waits for finalizers": {
			reason: "the object is there yet", policy: bothHub, record: was(a1), hub: lacks(observed), spoke: at("s", a1, deleting), want: "rest",
		},
		"no deletion but one from the selection ends it": {
			reason: "it is not shared any more", policy: bothHub, record: was(a1), hub: at("h", a1, unselected), spoke: at("s", a1), want: "forget",
		},
	})
}

func TestDecideAfterChange(t *testing.T) {
	decideAll(t, map[string]decision{
		"none is needed after none": {
			reason: "both are as they were", policy: bothHub, record: was(a1), hub: at("h", a1), spoke: at("s", a1), want: "rest",
		},
		"the hub's travels": {
			reason: "the cluster's did not change", policy: bothHub, record: was(a1), hub: at("h", a2), spoke: at("s", a1), want: "write Spoke Object {spec:{a:2}} then {spec:{a:2}}",
		},
		"the cluster's travels": {
			reason: "the hub's did not change", policy: bothHub, record: was(a1), hub: at("h", a1), spoke: at("s", a2), want: "write Hub Object {spec:{a:2}} then {spec:{a:2}}",
		},
		"the hub's goes first where both have one": {
			reason: "one request is made at a time", policy: bothHub, record: was(a1), hub: at("h", a2), spoke: at("s", a1b1), want: "write Spoke Object {spec:{a:2,b:1}} then {spec:{a:2}}",
		},
		"the same of both is no conflict": {
			reason: "both are the same", policy: bothHub, record: was(a1), hub: at("h", a2), spoke: at("s", a2), want: "adopt then {spec:{a:2}}",
		},
		"the hub's wins": {
			reason: "both have changed one field", policy: bothHub, record: was(a1), hub: at("h", a2), spoke: at("s", a3), want: "write Spoke Object {spec:{a:2}} then {spec:{a:2}} !.spec.a",
		},
		"the cluster's wins": {
			reason: "both have changed one field", policy: bothSpoke, record: was(a1), hub: at("h", a2), spoke: at("s", a3), want: "write Hub Object {spec:{a:3}} then {spec:{a:3}} !.spec.a",
		},
		"the status goes first where it is a subresource": {
			reason: "programs write what they have done before they hand over", policy: bothHub.with(subresources),
			record: was(a1S1), hub: at("h", a2S2), spoke: at("s", a1S1), want: "write Spoke Status {spec:{a:1},status:{x:2}} then {spec:{a:1},status:{x:2}}",
		},
		"the rest goes where only that has changed": {
			reason: "there is no status to write", policy: bothHub.with(subresources), record: was(a1S1), hub: at("h", a2S1), spoke: at("s", a1S1), want: "write Spoke Object {spec:{a:2},status:{x:1}} then {spec:{a:2},status:{x:1}}",
		},
		"one request does where the status is no subresource": {
			reason: "the API server takes both", policy: bothHub, record: was(a1S1), hub: at("h", a2S2), spoke: at("s", a1S1), want: "write Spoke Object {spec:{a:2},status:{x:2}} then {spec:{a:2},status:{x:2}}",
		},
		"conflicts are told with the request that decides them": {
			reason: "that of the rest may be decided otherwise", policy: bothHub.with(subresources),
			record: was(a1S1), hub: at("h", a2S2), spoke: at("s", a3S3), want: "write Spoke Status {spec:{a:3},status:{x:2}} then {spec:{a:1},status:{x:2}} !.status.x",
		},
		"what a definition drops is no change": {
			reason: "the bases differ", policy: bothHub, record: was(a1b1, a1), hub: at("h", a2b1), spoke: at("s", a1), want: "write Spoke Object {spec:{a:2}} then {spec:{a:2,b:1}} {spec:{a:2}}",
		},
		"the follower's is undone": {
			reason: "no change of the cluster travels", policy: toSpoke, record: was(a1), hub: at("h", a1), spoke: at("s", a2), want: "write Spoke Object {spec:{a:1}} then {spec:{a:1}}",
		},
		"the follower's status stays where it is a subresource": {
			reason: "it is that of who serves the object there", policy: toSpoke.with(subresources), record: was(a1S1), hub: at("h", a1S1), spoke: at("s", a1S2), want: "adopt then {spec:{a:1},status:{x:1}} {spec:{a:1},status:{x:2}}",
		},
		"the follower's status is undone where it is no subresource": {
			reason: "it is a field as others", policy: toSpoke, record: was(a1S1), hub: at("h", a1S1), spoke: at("s", a1S2), want: "write Spoke Object {spec:{a:1},status:{x:1}} then {spec:{a:1},status:{x:1}}",
		},
		"the status of the side that is followed travels": {
			reason: "it was changed there", policy: toHub.with(subresources), record: was(a1S1), hub: at("h", a1S1), spoke: at("s", a1S2), want: "write Hub Status {spec:{a:1},status:{x:2}} then {spec:{a:1},status:{x:2}}",
		},
	})
}

func TestDecideAfterUncertainWrite(t *testing.T) {
	wrote := func(hub, spoke string) *merge.States {
		s, err := encodedStates{Hub: []byte(hub), Spoke: []byte(spoke)}.decode()
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	decideAll(t, map[string]decision{
		"what is the same with both outcomes is no conflict": {
			reason: "b was written by nobody else", policy: bothHub, record: was(a1), unsure: wrote(a2, a2), hub: at("h", a2), spoke: at("s", a2b1), want: "write Hub Object {spec:{a:2,b:1}} then {spec:{a:2,b:1}}",
		},
		"what is not the same with both outcomes is one": {
			reason: "the cluster may or may not have seen 2", policy: bothHub, record: was(a1), unsure: wrote(a2, a2), hub: at("h", a2), spoke: at("s", a3), want: "write Spoke Object {spec:{a:2}} then {spec:{a:2}} !.spec.a",
		},
		"the cluster's wins": {
			reason: "the cluster may or may not have seen 2", policy: bothSpoke, record: was(a1), unsure: wrote(a2, a2), hub: at("h", a2), spoke: at("s", a3), want: "write Hub Object {spec:{a:3}} then {spec:{a:3}} !.spec.a",
		},
		"all conflicts are told with a first request": {
			reason: "the rest is none any more once the base is decided", policy: bothHub.with(subresources),
			record: was(a1S1), unsure: wrote(a2S2, a2S2), hub: at("h", a2S2), spoke: at("s", a3S3), want: "write Spoke Status {spec:{a:3},status:{x:2}} then {spec:{a:3},status:{x:2}} !.spec.a !.status.x",
		},
		"the follower is repaired all the same": {
			reason: "nothing of it is kept", policy: toSpoke, record: was(a1), unsure: wrote(a2, a2), hub: at("h", a2), spoke: at("s", a3), want: "write Spoke Object {spec:{a:2}} then {spec:{a:2}}",
		},
	})
}
