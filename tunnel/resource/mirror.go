// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/internal/quota"
)

// Receiver is told what changes in a mirror. Every field may be nil. The calls
// of one mirror never overlap and must not block.
type Receiver struct {
	// Put receives a new version.
	Put func(Resource)
	// Delete receives the key of a resource that the source withdrew, or lacked
	// when the stream began. Those that are not Known are not told of.
	Delete func(key string)
	// Synced is called once per stream: from here on the mirror equals the
	// source, and what it does not hold does not exist.
	Synced func()
	// Known tells whether a key is worth remembering; nil remembers all. What is not
	// known goes to Put all the same, and the next stream brings it again: a peer
	// cannot have us hold names that it makes up.
	Known func(key string) bool
	// keepsAccount: Put closes the account of what it was handed. Nil accounts may be closed.
	keepsAccount bool
}

// minPruneAt is the number of references up to which a mirror is not pruned.
const minPruneAt = 1000

// Mirror follows a peer's source of one kind. It keeps references, not bodies;
// those go to the receiver.
type Mirror struct {
	kind     string
	receiver Receiver
	// after, if not nil, is to be complete before the peer is asked for anything.
	after *Source

	// mu is held during callbacks too: closing an intake waits for one in flight.
	mu   sync.Mutex
	held map[string]Ref
	// pruneAt is the number of references at which the mirror is pruned.
	pruneAt int
}

// NewMirror returns a mirror that holds nothing.
func NewMirror(kind string, r Receiver) *Mirror {
	return &Mirror{kind: kind, receiver: r, held: map[string]Ref{}, pruneAt: minPruneAt}
}

// Kind of the resources.
func (m *Mirror) Kind() string { return m.kind }

// Hold states what the receiver already has, from a copy of its own; the next
// stream brings only what differs from it.
func (m *Mirror) Hold(refs ...Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range refs {
		m.held[r.Key] = r
	}
}

// Forget drops a reference, so that the next stream brings the resource again.
func (m *Mirror) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, key)
}

// isReady reports whether the inventory may be sent.
func (m *Mirror) isReady() bool { return m.after == nil || m.after.isComplete() }

// store stores the reference of what a peer sent, if its key is known; m.mu is held.
func (m *Mirror) store(ref Ref) error {
	if !m.isKnown(ref.Key) {
		delete(m.held, ref.Key)
		return nil
	}
	if _, ok := m.held[ref.Key]; !ok && len(m.held) >= m.pruneAt {
		m.prune()
	}
	if _, ok := m.held[ref.Key]; !ok && len(m.held) >= MaxResources {
		return fmt.Errorf("kind %q: limit is %d: %w", m.kind, MaxResources, ErrTooMany)
	}
	m.held[ref.Key] = ref
	return nil
}

func (m *Mirror) isKnown(key string) bool { return m.receiver.Known == nil || m.receiver.Known(key) }

// prune drops references whose keys are not known any more; m.mu is held.
func (m *Mirror) prune() {
	maps.DeleteFunc(m.held, func(key string, _ Ref) bool { return !m.isKnown(key) })
	m.pruneAt = min(max(minPruneAt, 2*len(m.held)), MaxResources)
}

// mirrorStream is what one stream may do with a mirror, until it is closed.
type mirrorStream struct {
	mirror *Mirror
	// closed is guarded by mirror.mu.
	closed bool
}

func (m *Mirror) open() *mirrorStream { return &mirrorStream{mirror: m} }

// close closes it: when it returns, no callback of this stream runs or will run.
func (i *mirrorStream) close() {
	i.mirror.mu.Lock()
	defer i.mirror.mu.Unlock()
	i.closed = true
}

// inventory returns the messages that state what the mirror holds, at least one.
func (i *mirrorStream) inventory() []*rpcv1.SyncMessage {
	m := i.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prune()
	keys := slices.Sorted(maps.Keys(m.held))
	var out []*rpcv1.SyncMessage
	for {
		n := min(len(keys), inventoryChunk)
		refs := make([]*rpcv1.ResourceRef, 0, n)
		for _, key := range keys[:n] {
			ref := encodeRef("", m.held[key])
			refs = append(refs, ref)
		}
		keys = keys[n:]
		in := &rpcv1.Inventory{Kind: m.kind, Refs: refs, More: len(keys) > 0}
		out = append(out, &rpcv1.SyncMessage{Message: &rpcv1.SyncMessage_Inventory{Inventory: in}})
		if len(keys) == 0 {
			return out
		}
	}
}

// put handles a resource whose cost is on the account. A receiver that keeps accounts
// closes it; in all other cases put does.
func (i *mirrorStream) put(p *rpcv1.Resource, account *quota.Account, now time.Time) error {
	handed := false
	defer func() {
		if !handed || !i.mirror.receiver.keepsAccount {
			account.Close()
		}
	}()
	ref, err := decodeRef(p.GetRef())
	if err != nil {
		return err
	}
	if Hash(sha256.Sum256(p.GetBody())) != ref.Hash {
		return fmt.Errorf("%w: body of %q does not match its hash", ErrProtocol, ref.Key)
	}
	m := i.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	if i.closed {
		return ErrSuperseded
	}
	old, known := m.held[ref.Key]
	if known && old == ref {
		return nil
	}
	if err := m.store(ref); err != nil {
		return err
	}
	if m.receiver.Put != nil {
		handed = true
		m.receiver.Put(Resource{
			Key: ref.Key, UID: ref.UID, Generation: ref.Generation, Body: p.GetBody(), Since: sinceOf(p.GetAgeMicros(), now),
			Account: account,
		})
	}
	return nil
}

func (i *mirrorStream) delete(p *rpcv1.ResourceRef) error {
	m := i.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	if i.closed {
		return ErrSuperseded
	}
	if _, ok := m.held[p.GetKey()]; !ok {
		return nil
	}
	delete(m.held, p.GetKey())
	if m.receiver.Delete != nil {
		m.receiver.Delete(p.GetKey())
	}
	return nil
}

func (i *mirrorStream) synced() error {
	m := i.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	if i.closed {
		return ErrSuperseded
	}
	if m.receiver.Synced != nil {
		m.receiver.Synced()
	}
	return nil
}
