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
func (en *entry) status() (wire.PodStatus, bool) {
	switch {
	case en.want == nil:
		return wire.PodStatus{}, false
	case en.mine():
		s := wire.PodStatus{Status: &en.live.pod.Status}
		if en.brought != nil {
			s.Generation = en.brought.generation
		}
		return s, true
	case en.verdict != nil:
		return *en.verdict, true
	default:
		return wire.PodStatus{}, false
	}
}

// publish tells the hub of a pod; e.mu is held. The same again is not sent.
func (e *Engine) publish(en *entry) {
	if en.mine() {
		en.verdict = nil
		delete(e.failing, en.place)
	}
	s, ok := en.status()
	if !ok {
		return
	}
	body, err := json.Marshal(s)
	if err == nil && len(body) > wire.PodStatusMaxBytes {
		s.Status = terse(s.Status)
		body, err = json.Marshal(s)
	}
	if err == nil {
		err = e.statuses.Put(resource.Resource{Key: en.key.String(), UID: string(en.want.uid), Body: body})
	}
	if err != nil {
		e.log.Error(err, "cannot publish a status", "pod", en.key.String())
	}
}

// terse is a status without the words of its containers, of which the hub takes so
// many and no more.
func terse(status *corev1.PodStatus) *corev1.PodStatus {
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

// endOf is what the hub is told of a pod of which nothing is left: its last status, or why
// it never was here.
func (e *Engine) endOf(en *entry, w *wanted, lost bool) wire.PodStatus {
	end := wire.PodStatus{Gone: true, Lost: lost, Status: e.finalOf(en, w)}
	if lost || w.seen || end.Status != nil {
		return end
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case en.want == w && en.verdict != nil:
		end.Reason, end.Message = en.verdict.Reason, en.verdict.Message
	case w.refused:
		refused := refusalOf(w.refusal)
		end.Reason, end.Message = refused.Reason, wire.Line(refused.Message)
	}
	return end
}

// judge tells the hub why there is no pod, unless it wants another by now.
func (e *Engine) judge(en *entry, w *wanted, verdict wire.PodStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.want != w || en.mine() {
		return
	}
	verdict.Generation = w.generation
	en.verdict = &verdict
	delete(e.failing, en.place)
	if verdict.Retried {
		e.failing[en.place] = struct{}{}
	}
	e.publish(en)
}

// refuse tells the hub what was refused, and returns the error for another attempt
// if that may heal.
func (e *Engine) refuse(en *entry, w *wanted, err error) error {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		refused = refusalOf(err)
	}
	e.judge(en, w, wire.PodStatus{Reason: refused.Reason, Message: wire.Line(refused.Message), Retried: refused.Retried})
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

// state is for the metrics; e.mu is held.
func (en *entry) state() string {
	switch {
	case en.live == nil && en.want != nil && en.over == en.want:
		return stateEnded
	case en.live == nil && en.verdict != nil:
		return stateRefused
	case en.live == nil:
		return stateWaiting
	case en.live.deleting:
		return stateDeleting
	case en.live.ended:
		return stateEnded
	case en.live.pod.Status.Phase == corev1.PodRunning:
		return stateRunning
	default:
		return statePending
	}
}
