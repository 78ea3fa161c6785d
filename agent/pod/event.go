// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonUpdateRefused is that of the event which says that the pod in the spoke
	// is not as the hub wants it, and why.
	ReasonUpdateRefused = "SpokeRefusedUpdate"
	// ReasonAnnotationsLeftOut is that of the event which names the annotations that
	// the pod in the spoke does not have.
	ReasonAnnotationsLeftOut = "AnnotationsLeftOut"

	// maxEarly bounds the events of one name that come before their pod.
	maxEarly = 16
)

// journal is what the hub was told of the events of one name.
type journal struct {
	// keys are in the order in which the events came.
	keys []string
	// early are events of pods that we have not seen yet.
	early []*corev1.Event
}

// scope is a namespace of the spoke with pods of ours.
type scope struct {
	pods int
	// listed: the events of before are known.
	listed bool
	stop   func()
}

// count keeps the events of a namespace watched for as long as it has a pod of ours;
// e.mu is held.
func (e *Engine) count(namespace string, more bool) {
	s, ok := e.scopes[namespace]
	switch {
	case more && ok:
		s.pods++
	case more:
		s = &scope{pods: 1}
		e.scopes[namespace] = s
		s.stop = e.follow(e.lifetime, e.spoke.events(namespace), &eventSink{engine: e, scope: s})
	case ok && s.pods > 1:
		s.pods--
	case ok:
		s.stop()
		delete(e.scopes, namespace)
		e.conclude()
	}
}

// eventSink takes the events of a namespace that are about pods, of which few are
// ours.
type eventSink struct {
	engine *Engine
	scope  *scope
}

// Event implements follow.Sink.
func (s *eventSink) Event(obj metav1.Object, deleted bool) {
	ev, ok := obj.(*corev1.Event)
	if !ok {
		return
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.entries[place{Namespace: ev.InvolvedObject.Namespace, Name: ev.InvolvedObject.Name}]
	switch {
	case en == nil:
	case deleted:
		e.expire(en, eventKey(en, ev))
	default:
		e.happened(en, ev)
	}
}

// Begin implements follow.Sink.
func (*eventSink) Begin() {}

// End implements follow.Sink.
func (s *eventSink) End(string) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	s.scope.listed = true
	e.conclude()
}

// Refused implements follow.Sink.
func (s *eventSink) Refused(err error) {
	s.engine.log.Error(err, "cannot watch the events of pods; the hub does not see them")
}

// happened tells the hub of an event; e.mu is held.
func (e *Engine) happened(en *entry, ev *corev1.Event) {
	switch {
	case en.key.Name == "": // a pod that the hub has no name for
	case ev.InvolvedObject.UID == en.last.uid:
		e.tell(en, eventKey(en, ev), en.last.hubUID, eventOf(ev))
		if ev.Type == corev1.EventTypeWarning {
			e.suspect(en)
		}
	case ev.InvolvedObject.UID != en.gone && len(en.events.early) < maxEarly:
		// The two watches are not in step.
		en.events.early = append(en.events.early, ev)
	}
}

// suspect has the copies looked at that a pod uses: its kubelet may miss one; e.mu is
// held.
func (e *Engine) suspect(en *entry) {
	for key := range en.held {
		e.queue.Add(item{object: key})
	}
}

// publishEarly tells of the events that came before their pod; e.mu is held.
func (e *Engine) publishEarly(en *entry) {
	for _, ev := range en.events.early {
		if ev.InvolvedObject.UID == en.last.uid {
			e.happened(en, ev)
		}
	}
	en.events.early = nil
}

// tell publishes an event; e.mu is held. The hub keeps as many as we do, so that room
// is made first.
func (e *Engine) tell(en *entry, key string, uid types.UID, event wire.PodEvent) {
	known := slices.Contains(en.events.keys, key)
	if !known && len(en.events.keys) >= wire.PodEventsMax {
		e.expire(en, en.events.keys[0])
	}
	body, err := json.Marshal(event)
	if err == nil {
		err = e.happenings.Put(resource.Resource{Key: key, UID: string(uid), Body: body})
	}
	if err != nil {
		e.log.Error(err, "cannot publish an event", "pod", en.key.String())
		return
	}
	if !known {
		en.events.keys = append(en.events.keys, key)
	}
}

// expire withdraws an event; e.mu is held.
func (e *Engine) expire(en *entry, key string) {
	e.happenings.Delete(key)
	en.events.keys = slices.DeleteFunc(en.events.keys, func(k string) bool { return k == key })
}

func eventKey(en *entry, ev *corev1.Event) string { return en.key.String() + "/" + string(ev.UID) }

// eventOf reads both forms of an event, that of v1 and that of events.k8s.io.
func eventOf(ev *corev1.Event) wire.PodEvent {
	out := wire.PodEvent{
		Type: corev1.EventTypeNormal, Reason: ev.Reason, Message: ev.Message,
		Count: ev.Count, First: ev.FirstTimestamp, Last: metav1.NewMicroTime(ev.LastTimestamp.Time),
		FieldPath: ev.InvolvedObject.FieldPath,
		Source:    ev.Source.Component, Host: ev.Source.Host,
	}
	if ev.Type == corev1.EventTypeWarning {
		out.Type = corev1.EventTypeWarning
	}
	if ev.Reason == "" {
		out.Reason = "Unknown"
	}
	if out.Source == "" {
		out.Source, out.Host = ev.ReportingController, ev.ReportingInstance
	}
	if out.First.IsZero() {
		out.First = metav1.NewTime(ev.EventTime.Time)
	}
	if out.Last.IsZero() {
		out.Last = ev.EventTime
	}
	if ev.Series != nil {
		out.Count, out.Last = ev.Series.Count, ev.Series.LastObservedTime
	}
	return out
}

// complain reports, once for each version of a pod, that the spoke does not take it.
// What went wrong on the way is not reported: it is tried again.
func (e *Engine) complain(en *entry, w *wanted, err error) {
	if !isRefusal(err) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warn(en, w, err)
}

// warn makes an event of our own about a pod in the spoke; e.mu is held.
func (e *Engine) warn(en *entry, w *wanted, err error) {
	if en.want != w || !en.mine() || en.complained == w {
		return
	}
	en.complained = w
	e.warnOf(en, "update", err)
}

// complainOf reports, once for each version of an object, that those who use it have
// an older one.
func (e *Engine) complainOf(o *object, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.want == nil || o.complained == o.want {
		return
	}
	o.complained = o.want
	for _, en := range e.usersOf(o) {
		if en.mine() {
			e.warnOf(en, o.key.Kind+"-"+o.key.Name, err)
		}
	}
}

// warnOf tells of one thing that the spoke refused, the last time that it did; e.mu
// is held.
func (e *Engine) warnOf(en *entry, what string, err error) {
	e.say(en, what, wire.PodEvent{Type: corev1.EventTypeWarning, Reason: ReasonUpdateRefused, Message: err.Error()})
}

// noteLeftOut names, once for each set of them, the annotations that the pod does not
// have in the spoke; e.mu is held.
func (e *Engine) noteLeftOut(en *entry) {
	if !en.mine() {
		return
	}
	before := en.noted
	en.noted = noted{uid: en.want.uid, leftOut: en.want.leftOutAnnotations}
	if en.noted == before || en.want.leftOutAnnotations == "" {
		return
	}
	e.say(en, "annotations", wire.PodEvent{
		Type: corev1.EventTypeNormal, Reason: ReasonAnnotationsLeftOut,
		Message: "left out in the cluster, as its owner's pods.annotations does not name them: " + en.want.leftOutAnnotations,
	})
}

// say makes an event of our own about one thing of a pod; e.mu is held.
func (e *Engine) say(en *entry, what string, event wire.PodEvent) {
	now := time.Now()
	event.Message, event.Count, event.Source = wire.Line(event.Message), 1, Creator
	event.First, event.Last = metav1.NewTime(now), metav1.NewMicroTime(now)
	e.tell(en, en.key.String()+"/"+string(en.want.uid)+"-"+what, en.want.uid, event)
}
