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

	"github.com/spokelet/spokelet/api/wire"
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
	ref
	uid string
}

// eventState is what is known of an event that the agent has.
type eventState struct {
	// body is what is to be written, nil when it was.
	body []byte
	// written: the hub has had the event from this keeper, or had it before.
	written bool
}

// parseEvent reads the key of an event.
func parseEvent(node, key string) (eventRef, bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 || i == len(key)-1 {
		return eventRef{}, false
	}
	pod, err := wire.ParsePodKey(key[:i])
	return eventRef{ref: ref{node: node, key: pod}, uid: key[i+1:]}, err == nil
}

// receiveEvent takes an event from an agent. It runs on the stream's goroutine.
func (k *Keeper) receiveEvent(cluster string, r resource.Resource) {
	k.arrive(cluster, arrival{kind: wire.KindPodEvent, Resource: r})
}

// takeEvent takes an event of a pod that is there; n.mu is held.
func (k *Keeper) takeEvent(n *node, r resource.Resource) {
	e, ok := parseEvent(n.name, r.Key)
	if !ok {
		k.complain(errEventKey, "agent sent an event that cannot be read", ref{node: n.name})
		return
	}
	h, ok := n.pods[e.key]
	if !ok || h.pod.UID != types.UID(r.UID) || !h.sent || !h.roomFor(e.uid) {
		return
	}
	if h.events == nil {
		h.events = map[string]eventState{}
	}
	h.events[e.uid] = eventState{body: r.Body, written: h.events[e.uid].written}
	k.eventQueue.Add(e)
}

func (h *held) roomFor(event string) bool {
	_, ok := h.events[event]
	return ok || len(h.events) < wire.PodEventsMax
}

// knowsEvent tells whether an event is about a pod that is there and one of those
// that are kept.
func (k *Keeper) knowsEvent(cluster, key string) (known bool) {
	k.ofEvent(cluster, key, func(h *held, e eventRef) { known = h.sent && h.roomFor(e.uid) })
	return known
}

// eventWithdrawn makes room.
func (k *Keeper) eventWithdrawn(cluster, key string) {
	k.ofEvent(cluster, key, func(h *held, e eventRef) { delete(h.events, e.uid) })
}

// ofEvent calls f with the pod of an event, if that is there.
func (k *Keeper) ofEvent(cluster, key string, f func(*held, eventRef)) {
	if e, ok := parseEvent(cluster, key); ok {
		k.withPod(e.ref, func(h *held) { f(h, e) })
	}
}

// withPod calls f with a pod, if that is there, under its node's lock.
func (k *Keeper) withPod(r ref, f func(*held)) {
	n := k.find(r.node)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h, ok := n.pods[r.key]; ok {
		f(h)
	}
}

func (k *Keeper) nextEvent(ctx context.Context) bool {
	e, quit := k.eventQueue.Get()
	if quit {
		return false
	}
	defer k.eventQueue.Done(e)
	if wait := k.config.Writes.Wait(e.node); wait > 0 {
		k.eventQueue.AddAfter(e, wait)
		return true
	}
	pod, pending, ok := k.pendingEvent(e)
	if !ok {
		k.eventQueue.Forget(e)
		return true
	}
	news, err := k.writeEvent(ctx, pod, e, pending)
	switch {
	case err != nil && !hopeless(err) && k.eventQueue.NumRequeues(e) < eventTries:
		k.eventAgain(e, pod, pending.body)
		k.eventQueue.AddRateLimited(e)
		return true
	case err != nil:
		k.config.Logger.V(1).Info("an event of a pod is not written", "pod", e.key.String(), "err", err.Error())
	default:
		k.eventThere(e, pod, news)
	}
	k.eventQueue.Forget(e)
	return true
}

// allowance bounds what is written of the events of one pod. The zero value is full.
type allowance struct {
	bucket *rate.Limiter
	// unused are tokens that were taken for nothing; spared counts those of events
	// that were there.
	unused, spared int
}

// take tells whether another event may be written.
func (a *allowance) take() bool {
	if a.unused > 0 {
		a.unused--
		return true
	}
	if a.bucket == nil {
		a.bucket = rate.NewLimiter(rate.Every(eventEvery), eventBurst)
	}
	return a.bucket.Allow()
}

// found takes back a token for an event that the hub had: a hub that was restarted is
// told again of all, which must not keep it from news. An agent that goes on to tell
// of what is there pays as for news.
func (a *allowance) found() {
	if a.spared < wire.PodEventsMax {
		a.spared++
		a.unused++
	}
}

// hopeless tells the errors that another try does not heal: the namespace is being
// deleted, or the event is not one.
func hopeless(err error) bool {
	return statuswriter.Refused(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
}

// pendingEvent returns an event that is to be written, and its pod. One of a pod
// that has had too many is dropped, as a component would.
func (k *Keeper) pendingEvent(e eventRef) (pod *corev1.Pod, pending eventState, ok bool) {
	k.withPod(e.ref, func(h *held) {
		if pending = h.events[e.uid]; pending.body == nil {
			return
		}
		h.events[e.uid] = eventState{written: pending.written}
		pod, ok = h.pod, h.allowance.take()
	})
	return pod, pending, ok
}

// eventAgain keeps an event that could not be written, unless there is a later one.
func (k *Keeper) eventAgain(e eventRef, pod *corev1.Pod, body []byte) {
	k.withEvent(e, pod, func(h *held, now eventState) {
		h.allowance.unused++
		if now.body == nil {
			h.events[e.uid] = eventState{body: body, written: now.written}
		}
	})
}

// eventThere takes that the hub has an event, and whether that was news to it.
func (k *Keeper) eventThere(e eventRef, pod *corev1.Pod, news bool) {
	k.withEvent(e, pod, func(h *held, now eventState) {
		h.events[e.uid] = eventState{body: now.body, written: true}
		if !news {
			h.allowance.found()
		}
	})
}

// withEvent calls f with the pod that an event was taken from and what is known of it
// now, unless either is gone: a pod that came under the name since is another.
func (k *Keeper) withEvent(e eventRef, pod *corev1.Pod, f func(*held, eventState)) {
	k.withPod(e.ref, func(h *held) {
		if now, ok := h.events[e.uid]; ok && h.pod.UID == pod.UID {
			f(h, now)
		}
	})
}

// writeEvent creates an event, or brings the one that is there up to date. It tells
// whether there was anything to write.
func (k *Keeper) writeEvent(ctx context.Context, pod *corev1.Pod, r eventRef, pending eventState) (news bool, err error) {
	e, err := wire.DecodePodEvent(pending.body)
	if err != nil {
		k.complain(err, "agent sent an event that cannot be read", r.ref)
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	event := eventOf(pod, r.uid, e)
	k.config.Writes.Spend(r.node, int64(event.Size()))
	if pending.written {
		// It may have expired: events do.
		if err := k.patchEvent(ctx, event); !apierrors.IsNotFound(err) {
			return true, err
		}
	}
	events := k.config.Client.CoreV1().Events(pod.Namespace)
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
	return true, k.patchEvent(ctx, event)
}

// warn makes an event of the hub's own about a pod, unless that is there, and reports
// whether it is.
func (k *Keeper) warn(ctx context.Context, pod *corev1.Pod, reason, message string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// No event of an agent has such a UID, and one of a process before has this.
	event := eventOf(pod, "hub/"+string(pod.UID)+"/"+message, wire.PodEvent{
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		Last: metav1.NewMicroTime(time.Now()), Source: reportingController,
	})
	_, err := k.config.Client.CoreV1().Events(pod.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		k.config.Logger.V(1).Info("an event of a pod is not written", "pod", keyOf(pod).String(), "err", err.Error())
		return false
	}
	return true
}

// patchEvent brings an event that is there up to date. The error is NotFound when it
// is not.
func (k *Keeper) patchEvent(ctx context.Context, event *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{
		"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message,
	})
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.Name, err)
	}
	_, err = k.config.Client.CoreV1().Events(event.Namespace).Patch(ctx, event.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// eventOf is the hub's event for one of the spoke; the same for the same UID, so
// that it is found again.
func eventOf(pod *corev1.Pod, uid string, e wire.PodEvent) *corev1.Event {
	last := metav1.NewTime(e.Last.Truncate(time.Second))
	first := e.First
	if first.IsZero() {
		first = last
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: eventName(pod.Name, uid), Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			FieldPath: cut(e.FieldPath, maxEventMessage),
		},
		Type: e.Type, Reason: cut(e.Reason, maxEventWord), Message: cut(e.Message, maxEventMessage),
		Source:         corev1.EventSource{Component: cut(e.Source, maxEventWord), Host: cut(e.Host, maxName)},
		FirstTimestamp: first, LastTimestamp: last, Count: max(e.Count, 1),
		ReportingController: reportingController,
	}
}

func eventName(pod, uid string) string {
	sum := sha256.Sum256([]byte(uid))
	suffix := "." + hex.EncodeToString(sum[:8])
	return strings.TrimRight(cut(pod, maxName-len(suffix)), ".-") + suffix
}

func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
