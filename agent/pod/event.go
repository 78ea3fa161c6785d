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

// eventLog is what the hub was told of the events of one name.
type eventLog struct {
	// keys are in the order in which the events came.
	keys []string
	// early are events of pods that we have not seen yet.
	early []*corev1.Event
}

// eventWatch is a namespace of the spoke with pods of ours.
type eventWatch struct {
	pods int
	// listed: the events of before are known.
	listed bool
	stop   func()
}

// countPodsOf keeps the events of a namespace watched for as long as it has a pod of ours;
// e.mu is held.
func (e *Engine) countPodsOf(namespace string, more bool) {
	s, ok := e.eventWatches[namespace]
	switch {
	case more && ok:
		s.pods++
	case more:
		s = &eventWatch{pods: 1}
		e.eventWatches[namespace] = s
		s.stop = e.startWatcher(e.runContext, e.spoke.events(namespace), &eventSink{engine: e, scope: s})
	case ok && s.pods > 1:
		s.pods--
	case ok:
		s.stop()
		delete(e.eventWatches, namespace)
		e.completeSources()
	}
}

// eventSink takes the events of a namespace that are about pods, of which few are
// ours.
type eventSink struct {
	engine *Engine
	scope  *eventWatch
}

func (s *eventSink) HandleEvent(obj metav1.Object, deleted bool) {
	ev, ok := obj.(*corev1.Event)
	if !ok {
		return
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	en := e.pods[namespacedName{Namespace: ev.InvolvedObject.Namespace, Name: ev.InvolvedObject.Name}]
	switch {
	case en == nil:
	case deleted:
		e.withdrawEvent(en, eventKey(en, ev))
	default:
		e.recordEvent(en, ev)
	}
}

func (*eventSink) StartSync() {}

func (s *eventSink) FinishSync(string) {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	s.scope.listed = true
	e.completeSources()
}

// HandleDenied implements watcher.Handler.
func (s *eventSink) HandleDenied(err error) {
	s.engine.log.Error(err, "cannot watch the events of pods; the hub does not see them")
}

// recordEvent tells the hub of an event; e.mu is held.
func (e *Engine) recordEvent(en *podState, ev *corev1.Event) {
	switch {
	case en.key.Name == "": // a pod that the hub has no name for
	case ev.InvolvedObject.UID == en.lastSeen.uid:
		e.publishEvent(en, eventKey(en, ev), en.lastSeen.hubUID, newPodEvent(ev))
		if ev.Type == corev1.EventTypeWarning {
			e.recheckCopies(en)
		}
	case ev.InvolvedObject.UID != en.deletedUID && len(en.events.early) < maxEarly:
		// The two watches are not in step.
		en.events.early = append(en.events.early, ev)
	}
}

// recheckCopies has the copies looked at that a pod uses: its kubelet may miss one; e.mu is
// held.
func (e *Engine) recheckCopies(en *podState) {
	for key := range en.references {
		e.queue.Add(queueItem{object: key})
	}
}

// publishEarlyEvents tells of the events that came before their pod; e.mu is held.
func (e *Engine) publishEarlyEvents(en *podState) {
	for _, ev := range en.events.early {
		if ev.InvolvedObject.UID == en.lastSeen.uid {
			e.recordEvent(en, ev)
		}
	}
	en.events.early = nil
}

// publishEvent publishes an event; e.mu is held. The hub keeps as many as we do, so that room
// is made first.
func (e *Engine) publishEvent(en *podState, key string, uid types.UID, event wire.PodEvent) {
	known := slices.Contains(en.events.keys, key)
	if !known && len(en.events.keys) >= wire.PodEventsMax {
		e.withdrawEvent(en, en.events.keys[0])
	}
	body, err := json.Marshal(event)
	if err == nil {
		err = e.events.Put(resource.Resource{Key: key, UID: string(uid), Body: body})
	}
	if err != nil {
		e.log.Error(err, "cannot publish an event", "pod", en.key.String())
		return
	}
	if !known {
		en.events.keys = append(en.events.keys, key)
	}
}

// withdrawEvent withdraws an event; e.mu is held.
func (e *Engine) withdrawEvent(en *podState, key string) {
	e.events.Delete(key)
	en.events.keys = slices.DeleteFunc(en.events.keys, func(k string) bool { return k == key })
}

func eventKey(en *podState, ev *corev1.Event) string { return en.key.String() + "/" + string(ev.UID) }

// newPodEvent reads both forms of an event, that of v1 and that of events.k8s.io.
func newPodEvent(ev *corev1.Event) wire.PodEvent {
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

// warnIfRefused reports, once for each version of a pod, that the spoke does not take it.
// What went wrong on the way is not reported: it is tried again.
func (e *Engine) warnIfRefused(en *podState, w *desiredPod, err error) {
	if !isRefused(err) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnOnce(en, w, err)
}

// warnOnce makes an event of our own about a pod in the spoke; e.mu is held.
func (e *Engine) warnOnce(en *podState, w *desiredPod, err error) {
	if en.desired != w || !en.runsDesired() || en.warned == w {
		return
	}
	en.warned = w
	e.publishWarning(en, "update", err)
}

// warnUsers reports, once for each version of an object, that those who use it have
// an older one.
func (e *Engine) warnUsers(o *copyState, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.desired == nil || o.warned == o.desired {
		return
	}
	o.warned = o.desired
	for _, en := range e.podsUsing(o) {
		if en.runsDesired() {
			e.publishWarning(en, o.key.Kind+"-"+o.key.Name, err)
		}
	}
}

// publishWarning tells of one thing that the spoke refused, the last time that it did; e.mu
// is held.
func (e *Engine) publishWarning(en *podState, what string, err error) {
	e.publishOwnEvent(en, what, wire.PodEvent{Type: corev1.EventTypeWarning, Reason: ReasonUpdateRefused, Message: err.Error()})
}

// reportLeftOutAnnotations names, once for each set of them, the annotations that the pod does not
// have in the spoke; e.mu is held.
func (e *Engine) reportLeftOutAnnotations(en *podState) {
	if !en.runsDesired() {
		return
	}
	before := en.annotationReport
	en.annotationReport = annotationReport{uid: en.desired.uid, leftOut: en.desired.leftOutAnnotations}
	if en.annotationReport == before || en.desired.leftOutAnnotations == "" {
		return
	}
	e.publishOwnEvent(en, "annotations", wire.PodEvent{
		Type: corev1.EventTypeNormal, Reason: ReasonAnnotationsLeftOut,
		Message: "left out in the cluster, as its owner's pods.annotations does not name them: " + en.desired.leftOutAnnotations,
	})
}

// publishOwnEvent makes an event of our own about one thing of a pod; e.mu is held.
func (e *Engine) publishOwnEvent(en *podState, what string, event wire.PodEvent) {
	now := time.Now()
	event.Message, event.Count, event.Source = wire.Line(event.Message), 1, Creator
	event.First, event.Last = metav1.NewTime(now), metav1.NewMicroTime(now)
	e.publishEvent(en, en.key.String()+"/"+string(en.desired.uid)+"-"+what, en.desired.uid, event)
}
