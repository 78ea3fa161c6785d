// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/quota"
)

// Load returns the present version of a resource, false when it is gone.
type Load func(key string) (Resource, bool)

// Source publishes the resources of one kind to one peer. It is safe for
// concurrent use; none of its methods blocks on the peer.
type Source struct {
	kind string
	load Load
	// maxBody bounds the bodies, in bytes.
	maxBody int
	// onMirrored is called for each stream whose inventory is complete, and what it
	// returns at the end of that stream. Set before the first.
	onMirrored func() (ceased func())

	mu       sync.Mutex
	entries  map[string]entry
	complete bool
	streams  map[*sourceStream]struct{}
}

type entry struct {
	ref   Ref
	body  []byte // nil in a lazy source
	since time.Time
	// sent: it was handed to a stream.
	sent bool
}

// NewSource returns an empty source of an agent, that keeps the bodies it is given,
// of MaxReport at most.
func NewSource(kind string) *Source { return newSource(kind, nil, MaxReport) }

// newSource returns an empty source that, with load, keeps references alone and asks
// load for a body when it is about to be sent. load must not call the source.
func newSource(kind string, load Load, maxBody int) *Source {
	return &Source{kind: kind, load: load, maxBody: maxBody, entries: map[string]entry{}, streams: map[*sourceStream]struct{}{}}
}

// Kind of the resources.
func (s *Source) Kind() string { return s.kind }

// Put publishes r, replacing the version before. Publishing the same content
// again sends nothing. It fails with ErrTooLarge or ErrInvalidKey and then
// leaves the version before in place.
func (s *Source) Put(r Resource) error {
	if err := r.validate(s.maxBody); err != nil {
		return err
	}
	e := entry{ref: RefOf(r), since: r.Since}
	if s.load == nil {
		e.body = r.Body
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.entries[r.Key]
	if ok && old.ref == e.ref {
		return nil
	}
	if ok && !old.sent && !old.since.IsZero() {
		e.since = old.since // the peer has yet to hear of that, too
	}
	s.entries[r.Key] = e
	for f := range s.streams {
		f.enqueueChange(e.ref)
	}
	return nil
}

// Delete withdraws the resource; a key that is not published is ignored.
func (s *Source) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.entries[key]; !ok {
		return
	}
	delete(s.entries, key)
	for f := range s.streams {
		f.enqueueDeletion(key)
	}
}

// Complete declares that the source now holds everything there is: from here on
// the mirror learns that what the source lacks is gone.
func (s *Source) Complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.complete {
		return
	}
	s.complete = true
	for f := range s.streams {
		f.enqueueAbsent()
		f.wake() // a mirror of the same stream may wait for it
	}
}

func (s *Source) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.complete
}

// Keys of the published resources, sorted.
func (s *Source) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.entries))
}

// Ref of the version that is published under a key.
func (s *Source) Ref(key string) (Ref, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	return e.ref, ok
}

func (s *Source) has(key string) bool {
	_, ok := s.Ref(key)
	return ok
}

// open begins one stream; wake is called, with the source locked, when next may
// have something new, and when the source is complete. What is kept of the peer's
// inventory is on the account, which close closes.
func (s *Source) open(account *quota.Account, wake func()) *sourceStream {
	f := &sourceStream{source: s, wake: wake, account: account, peerRefs: map[string]peerRef{}, queued: map[string]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[f] = struct{}{}
	return f
}

// sourceStream is what one stream knows of its peer. Its fields are guarded by source.mu.
type sourceStream struct {
	source *Source
	wake   func()

	account *quota.Account

	// peerRefs are, by key, what the mirror said it holds and was not yet compared with
	// what the source has.
	peerRefs map[string]peerRef
	// live is set after the last chunk of the inventory.
	live bool
	// queue holds the keys to send, each once; the empty key is Synced.
	queue          []pendingKey
	queued         map[string]struct{}
	absentEnqueued bool
	// onEnd is what asked returned; of the stream's reader, and of whoever closes
	// the feed after that has ended.
	onEnd func()
}

// peerRef is what the mirror said of one key, and what that takes on the account.
type peerRef struct {
	ref  Ref
	cost int64
}

// pendingKey is a key to send, and what it takes on the account: nothing, unless
// only the mirror has it.
type pendingKey struct {
	key  string
	cost int64
}

func (f *sourceStream) close() {
	f.unregister()
	f.account.Close()
	if f.onEnd != nil {
		f.onEnd()
	}
}

func (f *sourceStream) unregister() {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	delete(f.source.streams, f)
}

// refCostOf is what keeping a reference takes, in bytes.
func refCostOf(p *rpcv1.ResourceRef) int64 {
	return refCost + int64(len(p.GetKey())+len(p.GetUid()))
}

// inventoryCost is what keeping one chunk of an inventory takes at most.
func inventoryCost(in *rpcv1.Inventory) (cost int64) {
	for _, p := range in.GetRefs() {
		cost += refCostOf(p)
	}
	return cost
}

// handleInventory takes one chunk of what the mirror holds, whose cost is on the account. After
// the last one the stream is told of: asked is called before the writer has anything to
// send, and without the lock, so that it may use the source.
func (f *sourceStream) handleInventory(in *rpcv1.Inventory) error {
	if err := f.addInventory(in); err != nil || in.GetMore() {
		return err
	}
	if f.source.onMirrored != nil {
		f.onEnd = f.source.onMirrored()
	}
	f.enqueueMissing()
	return nil
}

// addInventory stores the references of one chunk.
func (f *sourceStream) addInventory(in *rpcv1.Inventory) error {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	if f.live {
		return fmt.Errorf("%w: second inventory of kind %q", ErrProtocol, f.source.kind)
	}
	if len(f.peerRefs)+len(in.GetRefs()) > MaxResources {
		return fmt.Errorf("inventory of kind %q: limit is %d: %w", f.source.kind, MaxResources, ErrTooMany)
	}
	for _, p := range in.GetRefs() {
		ref, err := decodeRef(p)
		if err != nil {
			return err
		}
		f.setPeerRef(ref, refCostOf(p))
	}
	return nil
}

// enqueueMissing queues what the mirror lacks, once its inventory is complete.
func (f *sourceStream) enqueueMissing() {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.live = true
	for _, key := range slices.Sorted(maps.Keys(f.source.entries)) {
		f.enqueueChange(f.source.entries[key].ref)
	}
	f.enqueueAbsent()
}

// setPeerRef keeps that the mirror has a resource. What is published takes nothing: its
// strings are there already, and how many there are is not for the peer to say.
func (f *sourceStream) setPeerRef(ref Ref, cost int64) {
	f.account.Shrink(f.peerRefs[ref.Key].cost) // said twice: the last counts
	if e, ok := f.source.entries[ref.Key]; ok && e.ref == ref {
		f.account.Shrink(cost)
		ref, cost = e.ref, 0
	}
	f.peerRefs[ref.Key] = peerRef{ref: ref, cost: cost}
}

// enqueueChange queues ref unless the mirror already holds exactly that.
func (f *sourceStream) enqueueChange(ref Ref) {
	if !f.live {
		return
	}
	held, ok := f.peerRefs[ref.Key]
	f.dropPeerRef(ref.Key)
	if ok && held.ref == ref {
		return
	}
	f.enqueue(pendingKey{key: ref.Key})
}

func (f *sourceStream) enqueueDeletion(key string) {
	if !f.live {
		return
	}
	f.dropPeerRef(key)
	f.enqueue(pendingKey{key: key})
}

// dropPeerRef drops what the mirror stated of a key.
func (f *sourceStream) dropPeerRef(key string) {
	f.account.Shrink(f.peerRefs[key].cost)
	delete(f.peerRefs, key)
}

// enqueueAbsent queues deletions of what only the mirror has, and Synced, once both
// the inventory and the source are complete.
func (f *sourceStream) enqueueAbsent() {
	if !f.live || !f.source.complete || f.absentEnqueued {
		return
	}
	f.absentEnqueued = true
	for _, key := range slices.Sorted(maps.Keys(f.peerRefs)) {
		f.enqueue(pendingKey{key: key, cost: f.peerRefs[key].cost})
	}
	f.peerRefs = nil
	f.enqueue(pendingKey{})
}

func (f *sourceStream) enqueue(p pendingKey) {
	if _, ok := f.queued[p.key]; ok {
		// It takes nothing: the keys that conclude queues with a cost are those which
		// neither changed nor removed has queued.
		return
	}
	f.queued[p.key] = struct{}{}
	f.queue = append(f.queue, p)
	f.wake()
}

// next returns the next message to send, nil when there is none for now.
func (f *sourceStream) next(now time.Time) *rpcv1.SyncMessage {
	for {
		key, e, published, ok := f.pop()
		if !ok {
			return nil
		}
		if key == "" {
			return synced(f.source.kind)
		}
		if !published {
			return deletion(f.source.kind, key)
		}
		if f.source.load == nil {
			return put(f.source.kind, e.ref, e.body, ageOf(e.since, now))
		}
		// Loaded outside the lock. A resource that is gone by now is skipped: its
		// Delete, or its oversized successor, is spoken about by whoever owns it.
		if r, ok := f.source.load(key); ok && r.Key == key && r.validate(f.source.maxBody) == nil {
			return put(f.source.kind, RefOf(r), r.Body, ageOf(r.Since, now))
		}
	}
}

func (f *sourceStream) pop() (key string, e entry, published, ok bool) {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	if len(f.queue) == 0 {
		return "", entry{}, false, false
	}
	key = f.queue[0].key
	f.account.Shrink(f.queue[0].cost)
	f.queue = f.queue[1:]
	delete(f.queued, key)
	if e, published = f.source.entries[key]; published {
		e.sent = true
		f.source.entries[key] = e
	}
	return key, e, published, true
}

func put(kind string, ref Ref, body []byte, age uint64) *rpcv1.SyncMessage {
	return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Put{Put: &rpcv1.Resource{Ref: encodeRef(kind, ref), Body: body, AgeMicros: age}}}
}

func deletion(kind, key string) *rpcv1.SyncMessage {
	return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Delete{Delete: &rpcv1.ResourceRef{Kind: kind, Key: key}}}
}

func synced(kind string) *rpcv1.SyncMessage {
	return &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Synced{Synced: &rpcv1.Synced{Kind: kind}}}
}
