// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// status is what the hub is to know of a pod now; false when there is nothing to
// say, or to say anew.
func (en *podState) status() (wire.PodStatus, bool) {
	switch {
	case en.desired == nil:
		return wire.PodStatus{}, false
	case en.runsDesired():
		s := wire.PodStatus{Status: &en.live.pod.Status}
		if en.applied != nil {
			s.Generation = en.applied.generation
		}
		return s, true
	case en.absentStatus != nil:
		return *en.absentStatus, true
	default:
		return wire.PodStatus{}, false
	}
}

// publishStatus tells the hub of a pod; e.mu is held. The same again is not sent.
func (e *Engine) publishStatus(en *podState) {
	if en.runsDesired() {
		en.absentStatus = nil
		delete(e.retried, en.name)
	}
	s, ok := en.status()
	if !ok {
		return
	}
	body, err := json.Marshal(s)
	if err == nil && len(body) > wire.PodStatusMaxBytes {
		s.Status = truncateStatus(s.Status)
		body, err = json.Marshal(s)
	}
	if err == nil {
		err = e.statuses.Put(resource.Resource{Key: en.key.String(), UID: string(en.desired.uid), Body: body})
	}
	if err != nil {
		e.log.Error(err, "cannot publish a status", "pod", en.key.String())
	}
}

// truncateStatus is a status without the words of its containers, of which the hub takes so
// many and no more.
func truncateStatus(status *corev1.PodStatus) *corev1.PodStatus {
	out := status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{out.InitContainerStatuses, out.ContainerStatuses, out.EphemeralContainerStatuses} {
		for i := range list {
			list[i].LastTerminationState = corev1.ContainerState{}
			if list[i].State.Terminated != nil {
				list[i].State.Terminated.Message = ""
			}
			if list[i].State.Waiting != nil {
				list[i].State.Waiting.Message = ""
			}
		}
	}
	return out
}

// goneStatus is what the hub is told of a pod of which nothing is left: its last status, or why
// it never was here.
func (e *Engine) goneStatus(en *podState, w *desiredPod, lost bool) wire.PodStatus {
	end := wire.PodStatus{Gone: true, Lost: lost, Status: e.lastStatus(en, w)}
	if lost || w.wasInCluster || end.Status != nil {
		return end
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case en.desired == w && en.absentStatus != nil:
		end.Reason, end.Message = en.absentStatus.Reason, en.absentStatus.Message
	case w.isRefused:
		refused := newRefusal(w.refusal)
		end.Reason, end.Message = refused.Reason, wire.Line(refused.Message)
	}
	return end
}

// setAbsent tells the hub why there is no pod, unless it wants another by now.
func (e *Engine) setAbsent(en *podState, w *desiredPod, verdict wire.PodStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.desired != w || en.runsDesired() {
		return
	}
	verdict.Generation = w.generation
	en.absentStatus = &verdict
	delete(e.retried, en.name)
	if verdict.Retried {
		e.retried[en.name] = struct{}{}
	}
	e.publishStatus(en)
}

// setRefused tells the hub what was refused, and returns the error for another attempt
// if that may heal.
func (e *Engine) setRefused(en *podState, w *desiredPod, err error) error {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = newRefusal(err)
	}
	e.setAbsent(en, w, wire.PodStatus{Reason: refused.Reason, Message: wire.Line(refused.Message), Retried: refused.Retried})
	if !refused.Retried {
		return nil
	}
	return err
}

// States of a pod, values of the label "state".
const (
	stateWaiting  = "waiting"
	stateRefused  = "refused"
	statePending  = "pending"
	stateRunning  = "running"
	stateEnded    = "ended"
	stateDeleting = "deleting"
)

// stateLabel is for the metrics; e.mu is held.
func (en *podState) stateLabel() string {
	switch {
	case en.live == nil && en.desired != nil && en.finished == en.desired:
		return stateEnded
	case en.live == nil && en.absentStatus != nil:
		return stateRefused
	case en.live == nil:
		return stateWaiting
	case en.live.deleting:
		return stateDeleting
	case en.live.hasEnded:
		return stateEnded
	case en.live.pod.Status.Phase == corev1.PodRunning:
		return stateRunning
	default:
		return statePending
	}
}
