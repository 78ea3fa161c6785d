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

// hubAnswer is what became of an object's writes to the hub.
type hubAnswer struct {
	applied, refused int64
	result           []byte
	reason           string
}

func (e *Engine) handleShare(r resource.Resource) {
	spec, err := wire.DecodeShare(r.Body)
	if err != nil {
		e.cfg.Logger.Error(err, "Invalid share", "share", r.Key)
		return
	}
	s := e.getOrCreateShare(r.Key)
	if s.setSpec(spec, r.UID, r.Generation) {
		e.startShare(s)
	}
	s.evaluateAbsent()
}

// handleShareDeletion removes a share; its objects stay in the cluster.
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

// deleteOrphanedRecords deletes the records of shares that no longer exist.
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
		e.cfg.Logger.Error(err, "Invalid object of the hub", "key", r.Key)
		return
	}
	if fence, ok := key.Fence(); ok {
		f, err := wire.DecodeFence(r.Body)
		if err != nil {
			e.cfg.Logger.Error(err, "Invalid fence of the hub", "key", r.Key)
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
		e.cfg.Logger.Error(err, "Invalid object of the hub", "key", r.Key)
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

// markSynced records that the hub has sent all it has: it lacks every other object.
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
