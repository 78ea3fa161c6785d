// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"slices"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// hubAnswer is what the hub has said to the writes of an object.
type hubAnswer struct {
	applied, refused int64
	result           []byte
	reason           string
}

func (e *Engine) handleShare(r resource.Resource) {
	spec, err := wire.DecodeShare(r.Body)
	if err != nil {
		e.cfg.Logger.Error(err, "share was refused", "share", r.Key)
		return
	}
	s := e.getOrCreateShare(r.Key)
	if s.setSpec(spec, r.UID, r.Generation) {
		e.startShare(s)
	}
	s.evaluateAbsent()
}

// handleShareDeletion ends a share: the objects stay where they are.
func (e *Engine) handleShareDeletion(name string) {
	e.mu.Lock()
	s, ok := e.sharesByName[name]
	delete(e.sharesByName, name)
	delete(e.sharesToReport, s)
	e.mu.Unlock()
	e.states.Delete(name)
	if ok {
		s.remove()
		e.restartOverlapping(s)
	}
}

// deleteOrphanedRecords forgets what is remembered of shares that are no more.
func (e *Engine) deleteOrphanedRecords() {
	for _, key := range e.cfg.Records.Keys() {
		if k, err := wire.ParseSharedKey(key); err != nil || e.getShare(k.Share) == nil {
			e.cfg.Records.Delete(key)
		}
	}
}

func (e *Engine) handleHubObject(r resource.Resource) {
	key, err := wire.ParseSharedKey(r.Key)
	if err != nil {
		e.cfg.Logger.Error(err, "object of the hub was refused", "key", r.Key)
		return
	}
	if fence, ok := key.Fence(); ok {
		f, err := wire.DecodeFence(r.Body)
		if err != nil {
			e.cfg.Logger.Error(err, "fence of the hub was refused", "key", r.Key)
			return
		}
		e.getOrCreateShare(key.Share).setFence(fence, f)
		return
	}
	o, err := wire.DecodeSharedObject(r.Body)
	if err == nil && len(o.Content) > 0 {
		_, err = sharedobject.Decode(o.Content)
	}
	if err != nil {
		e.cfg.Logger.Error(err, "object of the hub was refused", "key", r.Key)
		return
	}
	e.getOrCreateShare(key.Share).observeHubObject(key.Name, r, o)
}

func (e *Engine) handleHubObjectDeletion(key string) {
	k, err := wire.ParseSharedKey(key)
	if err != nil {
		return
	}
	s := e.getShare(k.Share)
	if s == nil {
		return
	}
	if fence, ok := k.Fence(); ok {
		s.deleteFence(fence)
		return
	}
	s.observeHubAbsence(k.Name)
}

// markSynced: what the hub has not said by now it does not have.
func (e *Engine) markSynced() {
	e.mu.Lock()
	e.synced = true
	all := slices.Collect(maps.Values(e.sharesByName))
	e.mu.Unlock()
	for _, s := range all {
		s.markHubListed()
	}
}

func (e *Engine) isSynced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.synced
}
