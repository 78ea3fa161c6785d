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

// answer is what the hub has said to the writes of an object.
type answer struct {
	applied, refused int64
	result           []byte
	reason           string
}

func (e *Engine) putShare(r resource.Resource) {
	spec, err := wire.DecodeShare(r.Body)
	if err != nil {
		e.cfg.Logger.Error(err, "share was refused", "share", r.Key)
		return
	}
	s := e.share(r.Key)
	if s.update(spec, r.UID, r.Generation) {
		e.start(s)
	}
	s.judge()
}

// deleteShare ends a share: the objects stay where they are.
func (e *Engine) deleteShare(name string) {
	e.mu.Lock()
	s, ok := e.byName[name]
	delete(e.byName, name)
	delete(e.unreported, s)
	e.mu.Unlock()
	e.states.Delete(name)
	if ok {
		s.end()
		e.retryOverlapping(s)
	}
}

// sharesSynced forgets what is remembered of shares that are no more.
func (e *Engine) sharesSynced() {
	for _, key := range e.cfg.Records.Keys() {
		if k, err := wire.ParseSharedKey(key); err != nil || e.find(k.Share) == nil {
			e.cfg.Records.Delete(key)
		}
	}
}

func (e *Engine) putObject(r resource.Resource) {
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
		e.share(key.Share).fence(fence, f)
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
	e.share(key.Share).hubHas(key.Name, r, o)
}

func (e *Engine) deleteObject(key string) {
	k, err := wire.ParseSharedKey(key)
	if err != nil {
		return
	}
	s := e.find(k.Share)
	if s == nil {
		return
	}
	if fence, ok := k.Fence(); ok {
		s.dropFence(fence)
		return
	}
	s.hubLacks(k.Name)
}

// objectsSynced: what the hub has not said by now it does not have.
func (e *Engine) objectsSynced() {
	e.mu.Lock()
	e.synced = true
	all := slices.Collect(maps.Values(e.byName))
	e.mu.Unlock()
	for _, s := range all {
		s.hubComplete()
	}
}

func (e *Engine) isSynced() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.synced
}
