// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// handleForcedDeletion takes that a pod was deleted on the hub without a grace. By then the hub
// may want another pod of that name, or none, and Sync tells of that one alone.
func (e *Engine) handleForcedDeletion(r resource.Resource) {
	key, err := wire.ParsePodTokenKey(r.Key)
	if err != nil {
		e.log.Error(err, "hub sent the end of a pod that cannot be read", "pod", r.Key)
		return
	}
	at := e.spokeName(key.PodKey)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forcedDeletions[types.UID(key.UID)] = struct{}{}
	if _, ok := e.pods[at]; ok {
		e.queue.Add(queueItem{pod: at})
	}
}

// handleForcedDeletionDeleted forgets it: the hub keeps the last ones alone.
func (e *Engine) handleForcedDeletionDeleted(key string) {
	k, err := wire.ParsePodTokenKey(key)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.forcedDeletions, types.UID(k.UID))
}
