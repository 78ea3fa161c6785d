// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// allowedSink has the pods tried again whose namespace's owner has just let them in. It
// keeps nothing: that a namespace takes pods is asked when one is made.
type allowedSink struct{ engine *Engine }

func (p allowedSink) HandleEvent(ns metav1.Object, deleted bool) {
	if !deleted {
		p.engine.retryNamespace(ns.GetName())
	}
}

func (allowedSink) StartSync() {}

func (allowedSink) FinishSync(string) {}

// HandleDenied only logs. What is allowed later is then found by the attempts
// at its pods.
func (p allowedSink) HandleDenied(err error) {
	p.engine.log.V(1).Info("cannot watch the labels of namespaces", "err", err.Error())
}

// retryNamespace tries the pods again that a namespace has refused.
func (e *Engine) retryNamespace(namespace string) {
	e.namespaces.invalidate(namespace)
	e.mu.Lock()
	defer e.mu.Unlock()
	for at := range e.retried {
		en := e.pods[at]
		if at.Namespace != namespace || en == nil || en.absentStatus == nil {
			continue
		}
		switch en.absentStatus.Reason {
		case ReasonNamespaceNotAllowed, ReasonNamespaceTerminating:
			e.queue.Add(queueItem{pod: at})
		}
	}
}
