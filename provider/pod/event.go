// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/statuswriter"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// eventBurst and eventEvery bound the writes of one pod's events, as client-go
	// bounds those of a component about one object.
	eventBurst = 25
	eventEvery = 5 * time.Minute
	// eventTries is how often an event is written before it is given up.
	eventTries = 5

	reportingController = "spokelet.io/hub"
	maxEventMessage     = 1024
	maxEventWord        = 128
	maxName             = 253
)

// errEventKey: the key of an event does not name a pod and an event.
var errEventKey = errors.New("key of an event is not namespace/name/uid")

// eventRef names an event of a pod.
type eventRef struct {
	podRef
	uid string
}

// eventState is what is known of an event that the agent has.
type eventState struct {
	// body is what is to be written, nil when it was.
	body []byte
	// written: the hub has had the event from this process, or had it before.
	written bool
}

// eventWriter writes on the hub the events that agents report of pods, and those of the hub
// itself.
type eventWriter struct {
	clusters    *clusterTable
	client      kubernetes.Interface
	writes      *quota.Writes
	agentErrors *agentErrorLog
	queue       workqueue.TypedRateLimitingInterface[eventRef]
}

// parseEventKey reads the key of an event.
func parseEventKey(node, key string) (eventRef, bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 || i == len(key)-1 {
		return eventRef{}, false
	}
	pod, err := wire.ParsePodKey(key[:i])
	return eventRef{podRef: podRef{cluster: node, key: pod}, uid: key[i+1:]}, err == nil
}

// handleEvent takes an event from an agent. It runs on the stream's goroutine.
func (c *Controller) handleEvent(cluster string, r resource.Resource) {
	c.handleMessage(cluster, agentMessage{kind: wire.KindPodEvent, Resource: r})
}

// enqueueEvent takes an event of a pod that is there; n.mu is held.
func (w *eventWriter) enqueueEvent(n *clusterState, r resource.Resource) {
	e, ok := parseEventKey(n.name, r.Key)
	if !ok {
		w.agentErrors.log(errEventKey, "agent sent an event that cannot be read", podRef{cluster: n.name})
		return
	}
	p, ok := n.pods[e.key]
	if !ok || p.pod.UID != types.UID(r.UID) || !p.published || !p.hasRoomForEvent(e.uid) {
		return
	}
	if p.events == nil {
		p.events = map[string]eventState{}
	}
	p.events[e.uid] = eventState{body: r.Body, written: p.events[e.uid].written}
	w.queue.Add(e)
}

func (p *podState) hasRoomForEvent(event string) bool {
	_, ok := p.events[event]
	return ok || len(p.events) < wire.PodEventsMax
}

// acceptsEvent tells whether an event is about a pod that is there and one of those
// that are kept.
func (w *eventWriter) acceptsEvent(cluster, key string) (known bool) {
	w.withEventPod(cluster, key, func(p *podState, e eventRef) { known = p.published && p.hasRoomForEvent(e.uid) })
	return known
}

// deleteEvent makes room.
func (w *eventWriter) deleteEvent(cluster, key string) {
	w.withEventPod(cluster, key, func(p *podState, e eventRef) { delete(p.events, e.uid) })
}

// withEventPod calls f with the pod of an event, if that is there.
func (w *eventWriter) withEventPod(cluster, key string, f func(*podState, eventRef)) {
	if e, ok := parseEventKey(cluster, key); ok {
		w.clusters.updatePod(e.podRef, func(p *podState) { f(p, e) })
	}
}

func (w *eventWriter) processNext(ctx context.Context) bool {
	e, quit := w.queue.Get()
	if quit {
		return false
	}
	defer w.queue.Done(e)
	if wait := w.writes.Wait(e.cluster); wait > 0 {
		w.queue.AddAfter(e, wait)
		return true
	}
	pod, pending, ok := w.popPendingEvent(e)
	if !ok {
		w.queue.Forget(e)
		return true
	}
	news, err := w.writeEvent(ctx, pod, e, pending)
	switch {
	case err != nil && !isPermanent(err) && w.queue.NumRequeues(e) < eventTries:
		w.restorePendingEvent(e, pod, pending.body)
		w.queue.AddRateLimited(e)
		return true
	case err != nil:
		w.agentErrors.logger.V(1).Info("an event of a pod is not written", "pod", e.key.String(), "err", err.Error())
	default:
		w.markEventWritten(e, pod, news)
	}
	w.queue.Forget(e)
	return true
}

// eventLimiter bounds what is written of the events of one pod. The zero value is full.
type eventLimiter struct {
	bucket *rate.Limiter
	// refunded are tokens that were taken for nothing; spared counts those of events
	// that were there.
	refunded, refundedExisting int
}

// allow tells whether another event may be written.
func (a *eventLimiter) allow() bool {
	if a.refunded > 0 {
		a.refunded--
		return true
	}
	if a.bucket == nil {
		a.bucket = rate.NewLimiter(rate.Every(eventEvery), eventBurst)
	}
	return a.bucket.Allow()
}

// refundExisting takes back a token for an event that the hub had: a hub that was restarted is
// told again of all, which must not keep it from news. An agent that goes on to tell
// of what is there pays as for news.
func (a *eventLimiter) refundExisting() {
	if a.refundedExisting < wire.PodEventsMax {
		a.refundedExisting++
		a.refunded++
	}
}

// isPermanent tells the errors that another try does not heal: the namespace is being
// deleted, or the event is not one.
func isPermanent(err error) bool {
	return statuswriter.IsRefused(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// popPendingEvent returns an event that is to be written, and its pod. One of a pod
// that has had too many is dropped, as a component would.
func (w *eventWriter) popPendingEvent(e eventRef) (pod *corev1.Pod, pending eventState, ok bool) {
	w.clusters.updatePod(e.podRef, func(p *podState) {
		if pending = p.events[e.uid]; pending.body == nil {
			return
		}
		p.events[e.uid] = eventState{written: pending.written}
		pod, ok = p.pod, p.eventLimit.allow()
	})
	return pod, pending, ok
}

// restorePendingEvent keeps an event that could not be written, unless there is a later one.
func (w *eventWriter) restorePendingEvent(e eventRef, pod *corev1.Pod, body []byte) {
	w.updateEvent(e, pod, func(p *podState, now eventState) {
		p.eventLimit.refunded++
		if now.body == nil {
			p.events[e.uid] = eventState{body: body, written: now.written}
		}
	})
}

// markEventWritten takes that the hub has an event, and whether that was news to it.
func (w *eventWriter) markEventWritten(e eventRef, pod *corev1.Pod, news bool) {
	w.updateEvent(e, pod, func(p *podState, now eventState) {
		p.events[e.uid] = eventState{body: now.body, written: true}
		if !news {
			p.eventLimit.refundExisting()
		}
	})
}

// updateEvent calls f with the pod that an event was taken from and what is known of it
// now, unless either is gone: a pod that came under the name since is another.
func (w *eventWriter) updateEvent(e eventRef, pod *corev1.Pod, f func(*podState, eventState)) {
	w.clusters.updatePod(e.podRef, func(p *podState) {
		if now, ok := p.events[e.uid]; ok && p.pod.UID == pod.UID {
			f(p, now)
		}
	})
}

// writeEvent creates an event, or brings the one that is there up to date. It tells
// whether there was anything to write.
func (w *eventWriter) writeEvent(ctx context.Context, pod *corev1.Pod, r eventRef, pending eventState) (news bool, err error) {
	e, err := wire.DecodePodEvent(pending.body)
	if err != nil {
		w.agentErrors.log(err, "agent sent an event that cannot be read", r.podRef)
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	event := newEvent(pod, r.uid, e)
	w.writes.Spend(r.cluster, int64(event.Size()))
	if pending.written {
		// It may have expired: events do.
		if err := w.patchEvent(ctx, event); !apierrors.IsNotFound(err) {
			return true, err
		}
	}
	events := w.client.CoreV1().Events(pod.Namespace)
	_, err = events.Create(ctx, event, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return true, err
	}
	have, err := events.Get(ctx, event.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read event %s: %w", event.Name, err)
	}
	if have.Count >= event.Count && !have.LastTimestamp.Before(&event.LastTimestamp) {
		return false, nil
	}
	return true, w.patchEvent(ctx, event)
}

// recordWarning makes an event of the hub's own about a pod, unless that is there, and reports
// whether it is.
func (w *eventWriter) recordWarning(ctx context.Context, pod *corev1.Pod, reason, message string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// No event of an agent has such a UID, and one of a process before has this.
	event := newEvent(pod, "hub/"+string(pod.UID)+"/"+message, wire.PodEvent{
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Last: metav1.NewMicroTime(time.Now()), Source: reportingController,
	})
	_, err := w.client.CoreV1().Events(pod.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.agentErrors.logger.V(1).Info("an event of a pod is not written", "pod", keyOf(pod).String(), "err", err.Error())
		return false
	}
	return true
}

// patchEvent brings an event that is there up to date. The error is NotFound when it
// is not.
func (w *eventWriter) patchEvent(ctx context.Context, event *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{
		"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message,
	})
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.Name, err)
	}
	_, err = w.client.CoreV1().Events(event.Namespace).Patch(ctx, event.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// newEvent is the hub's event for one of the spoke; the same for the same UID, so
// that it is found again.
func newEvent(pod *corev1.Pod, uid string, e wire.PodEvent) *corev1.Event {
	last := metav1.NewTime(e.Last.Truncate(time.Second))
	first := e.First
	if first.IsZero() {
		first = last
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: eventName(pod.Name, uid), Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			FieldPath: truncate(e.FieldPath, maxEventMessage),
		},
		Type: e.Type, Reason: truncate(e.Reason, maxEventWord), Message: truncate(e.Message, maxEventMessage),
		Source:         corev1.EventSource{Component: truncate(e.Source, maxEventWord), Host: truncate(e.Host, maxName)},
		FirstTimestamp: first, LastTimestamp: last, Count: max(e.Count, 1),
		ReportingController: reportingController,
	}
}

func eventName(pod, uid string) string {
	sum := sha256.Sum256([]byte(uid))
	suffix := "." + hex.EncodeToString(sum[:8])
	return strings.TrimRight(truncate(pod, maxName-len(suffix)), ".-") + suffix
}

func truncate(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
