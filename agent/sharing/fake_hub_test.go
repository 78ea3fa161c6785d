// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	cluster   = "spoke1"
	shareName = "widgets"
)

// fakeHub publishes the objects of a store for one share, and writes what the agent asks
// for. Its lock is that of the store.
type fakeHub struct {
	t       testing.TB
	store   *fakeStore
	network *fakeNetwork

	// All below are guarded by store.mu.
	sync  *resource.Hub
	share wire.Share
	uid   string
	// life counts restarts: what an earlier one has begun comes to nothing.
	life       int
	generation int64
	asked      map[string]*fakeAsked
	told       map[string]bool
	tombstones map[string]fakeTombstone
	// refusal, if not nil, says why a write is refused.
	refusal func(name string, w wire.SharedWrite) string
	// confirms: whatever is held is confirmed.
	confirms bool
	// silent: writes are not answered, and not made. writing: one is being made.
	silent, writing bool

	state    wire.ShareState
	decided  map[int64]wire.Decided
	received int // messages of the agent
	writes   []string
	applied  int
}

// fakeAsked is what the agent asks for of a name, and what became of it.
type fakeAsked struct {
	pending          *wire.SharedWrite
	generation       int64
	uid              string
	applied, refused int64
	result           []byte
	reason           string
}

type fakeTombstone struct {
	uid    string
	number int64
}

func newFakeHub(t testing.TB, store *fakeStore, network *fakeNetwork, share wire.Share) *fakeHub {
	h := &fakeHub{t: t, store: store, network: network, share: share, uid: "share-1", decided: map[int64]wire.Decided{}}
	store.told = h.changed
	h.restart()
	return h
}

// defaultShare shares widgets both ways.
func defaultShare() wire.Share {
	return wire.Share{
		Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", HubNamespace: namespace, SpokeNamespace: namespace,
		ToSpoke: true, ToHub: true, Winner: wire.SharedHub, HubUID: "hub-1", Quota: muchRoom(),
	}
}

// muchRoom is a quota that no test reaches by chance.
func muchRoom() wire.SharedSize { return wire.SharedSize{Objects: 1 << 20, Bytes: 1 << 40} }

// restart begins another process over the same objects. Whoever was connected has to
// connect again.
func (h *fakeHub) restart() {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.life++
	h.asked, h.told, h.tombstones = map[string]*fakeAsked{}, map[string]bool{}, map[string]fakeTombstone{}
	h.sync = resource.NewHub()
	h.sync.Publish(wire.KindShare, nil)
	h.sync.Publish(wire.KindSharedObject, nil)
	h.sync.Mirror(wire.KindSharedWrite, resource.HubReceiver{
		Put:    func(_ string, r resource.Resource) { h.handleWrite(r) },
		Delete: func(_, key string) { h.withdraw(key) },
	})
	h.sync.Mirror(wire.KindShareState, resource.HubReceiver{Put: func(_ string, r resource.Resource) { h.handleState(r) }})
	h.fence()
	for _, kind := range []string{wire.KindShare, wire.KindSharedObject} {
		h.sync.Source(cluster, kind).Complete()
	}
}

// fence publishes all objects, a fence and the share; store.mu is held.
func (h *fakeHub) fence() {
	for _, obj := range h.store.list(widgets, namespace, "") {
		h.publish(obj.GetName())
	}
	old := h.share.Fence
	h.share.Fence = fmt.Sprintf("fence-%d-%d", h.life, h.store.version)
	body, _ := json.Marshal(wire.Fence{Version: h.store.version})
	h.put(wire.KindSharedObject, resource.Resource{Key: wire.FenceKey(shareName, h.share.Fence).String(), Generation: h.store.version, Body: body})
	h.publishShare()
	if old != "" && old != h.share.Fence {
		h.sync.Source(cluster, wire.KindSharedObject).Delete(wire.FenceKey(shareName, old).String())
	}
}

func (h *fakeHub) publishShare() {
	body, err := json.Marshal(h.share)
	if err != nil {
		h.t.Error(err)
	}
	h.generation++
	h.put(wire.KindShare, resource.Resource{Key: shareName, UID: h.uid, Generation: h.generation, Body: body})
}

func (h *fakeHub) put(kind string, r resource.Resource) {
	if err := h.sync.Source(cluster, kind).Put(r); err != nil {
		h.t.Errorf("%s %s: %v", kind, r.Key, err)
	}
}

// edit changes the share.
func (h *fakeHub) edit(edit func(s *wire.Share)) {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.share.Confirmed = slices.Clone(h.share.Confirmed)
	selector := h.share.Selector
	edit(&h.share)
	for name := range h.told {
		h.publish(name)
	}
	if h.share.Selector != selector {
		h.fence()
		return
	}
	h.publishShare()
}

func keyOf(name string) string { return wire.SharedKey{Share: shareName, Name: name}.String() }

// changed is told of each change of the hub's objects; store.mu is held.
func (h *fakeHub) changed(c change) {
	if c.at.resource != widgets || c.at.namespace != namespace {
		return
	}
	delete(h.tombstones, c.at.name)
	if c.kind == watch.Deleted {
		h.tombstones[c.at.name] = fakeTombstone{uid: string(c.object.GetUID()), number: c.version}
	}
	if !h.writing {
		h.publishDelayed(c.at.name)
	}
}

// publishDelayed publishes an object after a while; store.mu is held.
func (h *fakeHub) publishDelayed(name string) {
	life := h.life
	publish := func() {
		if h.life == life {
			h.publish(name)
			h.execute(name)
		}
	}
	lag := h.network.watchLag()
	if lag == 0 {
		publish()
		return
	}
	time.AfterFunc(lag, func() {
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		publish()
	})
}

// publish says how an object is, and what became of what was asked; store.mu is held.
func (h *fakeHub) publish(name string) {
	var w wire.SharedObject
	r := resource.Resource{Key: keyOf(name)}
	obj := h.store.objects[widget(name)]
	stone, dead := h.tombstones[name]
	asked := h.asked[name]
	if asked != nil {
		w.Applied, w.Refused, w.Result, w.Reason = asked.applied, asked.refused, asked.result, asked.reason
	}
	switch {
	case obj != nil && (h.selects(obj) || h.told[name]):
		if w.Unselected = !h.selects(obj); !w.Unselected {
			w.Content, w.Version = encode(h.t, sharedobject.Of(obj))
			w.Deleting = obj.GetDeletionTimestamp() != nil
		}
		r.UID, r.Generation = string(obj.GetUID()), number(obj.GetResourceVersion())
		h.told[name] = true
	case obj == nil && dead && h.told[name]:
		w.Deleted = true
		r.UID, r.Generation = stone.uid, stone.number
	case asked == nil || asked.applied+asked.refused == 0:
		delete(h.told, name)
		h.sync.Source(cluster, wire.KindSharedObject).Delete(r.Key)
		return
	}
	body, err := json.Marshal(w)
	if err != nil {
		h.t.Error(err)
	}
	r.Body = body
	h.put(wire.KindSharedObject, r)
}

func (h *fakeHub) selects(obj *unstructured.Unstructured) bool {
	selector, err := labels.Parse(h.share.Selector)
	if err != nil {
		h.t.Error(err)
	}
	return selector.Matches(labels.Set(obj.GetLabels()))
}

func encode(t testing.TB, c sharedobject.Content) (raw []byte, version string) {
	raw, err := sharedobject.Encode(c)
	if err != nil {
		t.Error(err)
	}
	return raw, sharedobject.Version(raw)
}

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

// handleWrite takes what the agent asks for.
func (h *fakeHub) handleWrite(r resource.Resource) {
	w, err := wire.DecodeSharedWrite(r.Body)
	k, bad := wire.ParseSharedKey(r.Key)
	if err != nil || bad != nil {
		h.t.Errorf("write %s: %v, %v", r.Key, err, bad)
		return
	}
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.received++
	h.writes = append(h.writes, string(w.Part)+" "+k.Name)
	a := h.asked[k.Name]
	if a == nil {
		a = &fakeAsked{}
		h.asked[k.Name] = a
	}
	if r.Generation <= max(a.applied, a.refused) {
		return
	}
	a.pending, a.generation, a.uid = &w, r.Generation, r.UID
	life := h.life
	execute := func() {
		if h.life == life {
			h.execute(k.Name)
			h.publish(k.Name) // if it was not made from what there is that says so
		}
	}
	delay := h.network.delay()
	if delay == 0 {
		execute()
		return
	}
	time.AfterFunc(delay, func() {
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		execute()
	})
}

func (h *fakeHub) withdraw(key string) {
	k, _ := wire.ParseSharedKey(key)
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.received++
	delete(h.asked, k.Name)
	if h.store.objects[widget(k.Name)] == nil {
		h.publish(k.Name)
	}
}

// handleState takes what the agent says of the share.
func (h *fakeHub) handleState(r resource.Resource) {
	state, err := wire.DecodeShareState(r.Body)
	if err != nil {
		h.t.Errorf("state: %v", err)
		return
	}
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.received++
	h.state = state
	for _, d := range state.Decided {
		h.decided[d.Number] = d
	}
	if hold := state.Hold; hold != nil && h.confirms && !slices.Contains(h.share.Confirmed, hold.Token) {
		h.share.Confirmed = append(slices.Clone(h.share.Confirmed), hold.Token)
		h.publishShare()
	}
}

// lastState is what the agent said last.
func (h *fakeHub) lastState() wire.ShareState {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	return h.state
}

// decisions are those that were told so far.
func (h *fakeHub) decisions() map[int64]wire.Decided {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	return maps.Clone(h.decided)
}
