// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"bytes"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// execute makes what is asked for of a name, if it was made from what there is; store.mu
// is held.
func (h *fakeHub) execute(name string) {
	a := h.asked[name]
	if a == nil || a.pending == nil || h.silent {
		return
	}
	w := *a.pending
	if h.refusal != nil {
		if reason := h.refusal(name, w); reason != "" {
			h.answerRefused(name, a, reason)
			return
		}
	}
	if !h.share.ToHub {
		h.answerRefused(name, a, "hub: no changes of clusters are taken")
		return
	}
	if h.exceedsQuota(name, w) {
		h.answerRefused(name, a, "hub: the quota is reached")
		return
	}
	at := widget(name)
	obj := h.store.objects[at]
	if obj == nil {
		if w.Seen == "" {
			h.answerApplied(name, a, w, func() { h.createObject(name, w) })
		}
		return
	}
	if _, version := encode(h.t, sharedobject.Of(obj)); version != w.Seen || a.uid != string(obj.GetUID()) {
		return
	}
	h.answerApplied(name, a, w, func() {
		switch {
		case w.Part != wire.PartDeletion:
			h.writeObject(name, w)
		case len(obj.GetFinalizers()) == 0:
			h.store.removeObject(at)
		case obj.GetDeletionTimestamp() == nil:
			h.t.Error("the fake hub knows no finalizers")
		}
	})
}

// exceedsQuota reports whether there is no room for a write; store.mu is held.
func (h *fakeHub) exceedsQuota(name string, w wire.SharedWrite) bool {
	if w.Part == wire.PartDeletion {
		return false
	}
	others, has := wire.SharedSize{}, wire.SharedSize{}
	for _, obj := range h.store.list(widgets, namespace, "") {
		if raw, _ := encode(h.t, sharedobject.Of(obj)); !h.selects(obj) {
			continue
		} else if one := (wire.SharedSize{Objects: 1, Bytes: int64(len(raw))}); obj.GetName() == name {
			has = one
		} else {
			others = others.Plus(one)
		}
	}
	return h.share.Quota.Exceeded(others, has, wire.SharedSize{Objects: 1, Bytes: int64(len(w.Content))}) != ""
}

func (h *fakeHub) answerRefused(name string, a *fakeAsked, reason string) {
	a.refused, a.reason, a.pending = a.generation, reason, nil
	h.publish(name)
}

// answerApplied makes a write, and answers it in what is published with it.
func (h *fakeHub) answerApplied(name string, a *fakeAsked, w wire.SharedWrite, write func()) {
	a.applied, a.pending, a.result = a.generation, nil, nil
	h.applied++
	h.writing = true
	write()
	h.writing = false
	if obj := h.store.objects[widget(name)]; obj != nil && w.Part != wire.PartDeletion {
		if raw, _ := encode(h.t, sharedobject.Of(obj)); !bytes.Equal(raw, w.Content) {
			a.result = raw
		}
	}
	h.publishDelayed(name)
}

func (h *fakeHub) decode(raw []byte) sharedobject.Content {
	c, err := sharedobject.Decode(raw)
	if err != nil {
		h.t.Error(err)
	}
	return c
}

func (h *fakeHub) createObject(name string, w wire.SharedWrite) {
	obj := h.decode(w.Content).Object("example.com/v1", "Widget", namespace, name).DeepCopy()
	if h.share.StatusSubresource {
		delete(obj.Object, "status")
	}
	h.store.runAdmission(obj)
	h.store.commit(widget(name), obj)
}

func (h *fakeHub) writeObject(name string, w wire.SharedWrite) {
	old := h.store.objects[widget(name)]
	has, asks := sharedobject.Of(old), h.decode(w.Content)
	switch {
	case w.Part == wire.PartStatus:
		asks = has.WithStatus(asks)
	case h.share.StatusSubresource:
		asks = asks.WithStatus(has)
	}
	next := asks.Object("example.com/v1", "Widget", namespace, name).DeepCopy()
	next.SetUID(old.GetUID())
	next.SetResourceVersion(old.GetResourceVersion())
	h.store.runAdmission(next)
	if !equality.Semantic.DeepEqual(sharedobject.Of(next), has) {
		h.store.commit(widget(name), next)
	}
}
