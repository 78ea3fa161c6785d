// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// A pod that is deleted by force is gone from the hub at once, and its name may be
// another's in the next moment. Sync brings an agent to the last state of a name, so the
// agent may never see that the pod was deleted, nor with what grace: it would end it with
// its own, and keep whoever has the name waiting. So it is told of the pod by its UID.
//
// Only the event of a deletion says that there was no grace. Of pods that a later list
// lacks it is not known, the hub may have been restored from a backup: those end with
// their own.

// publishForcedDeletion tells the agent of a pod that was deleted as its last version gone says, if
// it had no grace and may yet run; n.mu is held.
func (c *Controller) publishForcedDeletion(n *clusterState, p *podState, gone *corev1.Pod) {
	grace := gone.DeletionGracePeriodSeconds
	if n.forgotten || !p.published || p.pod.UID != gone.UID || grace == nil || *grace != 0 || p.deletionConfirmed || p.report.hasEnded() {
		return
	}
	key := wire.PodTokenKey{PodKey: keyOf(gone), UID: string(gone.UID)}.String()
	if err := c.config.Sync.Source(n.name, wire.KindPodForced).Put(resource.Resource{Key: key, UID: string(gone.UID)}); err != nil {
		c.config.Logger.Error(err, "cannot tell a cluster that a pod was deleted by force", "node", n.name, "pod", key)
		return
	}
	n.forcedKeys = append(n.forcedKeys, key)
	c.trimForced(n, wire.PodsForcedMax)
}

// trimForced withdraws all but the last of them; n.mu is held. The agent does not say
// when it has ended one: a bound is what ends them.
func (c *Controller) trimForced(n *clusterState, last int) {
	for len(n.forcedKeys) > last {
		if !n.forgotten {
			c.config.Sync.Source(n.name, wire.KindPodForced).Delete(n.forcedKeys[0])
		}
		n.forcedKeys = n.forcedKeys[1:]
	}
}
