// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
)

// unlistedRetry is the longest pause before a pod is tried again that waits for the
// list of nodes: nobody says when that is there.
const unlistedRetry = time.Second

// Groups tells the groups of nodes that the cluster is shown in now, sorted. It does
// not wait; an error says that they are not known yet.
type Groups interface {
	GroupNames() ([]string, error)
}

// noGroupsError refuses a pod of a group in a cluster that is not split: it would run on
// any node.
func noGroupsError(group string) error {
	return &translate.RefusedError{
		Reason:  translate.ReasonNodeGroupUnknown,
		Message: wire.Line(fmt.Sprintf("the pod is bound to the group %q, and the cluster's nodes are not in groups (node.splitLabel of its agent)", group)),
	}
}

// assignToGroup sees to it that a pod runs on the nodes that the hub's scheduler chose: those
// of its group, those that are in none, or, where the hub does not consent to the label
// and shows the cluster as one node, any. The error is that the groups are not known yet,
// and the pod at that place is then in the queue.
func (e *Engine) assignToGroup(at namespacedName, pod *corev1.Pod, w *desiredPod) error {
	if e.cfg.SplitLabel == "" {
		return nil
	}
	if w.group != "" {
		translate.SelectGroup(pod, e.cfg.SplitLabel, w.group)
		return nil
	}
	if w.splitLabel != e.cfg.SplitLabel {
		return nil
	}
	groups, err := e.cfg.Groups.GroupNames()
	if err != nil {
		e.queue.AddAfter(queueItem{pod: at}, unlistedRetry) // of two pauses the shorter counts
		return fmt.Errorf("groups of nodes: %w", err)
	}
	translate.AvoidGroups(pod, e.cfg.SplitLabel, groups)
	return nil
}
