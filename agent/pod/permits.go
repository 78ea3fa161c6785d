// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// permits has the pods tried again whose namespace's owner has just let them in. It
// keeps nothing: that a namespace takes pods is asked when one is made.
type permits struct{ engine *Engine }

// HandleEvent implements follow.Sink.
func (p permits) HandleEvent(ns metav1.Object, deleted bool) {
	if !deleted {
		p.engine.permitted(ns.GetName())
	}
}

// StartSync implements follow.Sink.
func (permits) StartSync() {}

// FinishSync implements follow.Sink.
func (permits) FinishSync(string) {}

// HandleDenied implements follow.Sink. What is allowed later is then found by the attempts
// at its pods.
func (p permits) HandleDenied(err error) {
	p.engine.log.V(1).Info("cannot watch the labels of namespaces", "err", err.Error())
}

// permitted tries the pods again that a namespace has refused.
func (e *Engine) permitted(namespace string) {
	e.namespaces.forget(namespace)
	e.mu.Lock()
	defer e.mu.Unlock()
	for at := range e.failing {
		en := e.entries[at]
		if at.Namespace != namespace || en == nil || en.verdict == nil {
			continue
		}
		switch en.verdict.Reason {
		case ReasonNamespaceNotAllowed, ReasonNamespaceTerminating:
			e.queue.Add(item{place: at})
		}
	}
}
