// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/statuswriter"
)

// errGone: there is no such pod any more.
var errGone = errors.New("pod is gone")

// errNotWarned: an event of a pod could not be written.
var errNotWarned = errors.New("event of the pod is not written")

// task is what is to be made true of a pod.
type task struct {
	ref
	pod *corev1.Pod
	// said is what is to be said of it; report is whence, nil when from the hub.
	said   wire.PodStatus
	report *report
	// released: the pod was let go of, and the watch has yet to say so.
	released bool
}

func (k *Keeper) next(ctx context.Context) bool {
	r, quit := k.queue.Get()
	if quit {
		return false
	}
	defer k.queue.Done(r)
	// What comes meanwhile replaces the report that waits.
	if wait := k.pace.Wait(r); wait > 0 {
		k.queue.AddAfter(r, wait)
		return true
	}
	t, ok := k.task(r)
	if !ok {
		k.queue.Forget(r)
		return true
	}
	if wait := k.debt(t); wait > 0 {
		k.queue.AddAfter(r, wait)
		return true
	}
	err := k.perform(ctx, t)
	switch {
	case err == nil, errors.Is(err, errGone):
	case statuswriter.Refused(err):
		// Another try would bring the same: the agent's next report may be better.
		k.metrics.wrote(resultRefused)
		k.complain(err, "the status of a pod is refused", r)
	default:
		k.queue.AddRateLimited(r)
		k.metrics.wrote(resultError)
		k.config.Logger.V(1).Info("a pod is written again", "node", r.node, "pod", r.key.String(), "err", err.Error())
		return true
	}
	k.queue.Forget(r)
	k.performed(t)
	return true
}

// debt is how long a task has to wait for what its cluster has had written. What the
// hub itself has to say of a pod does not wait.
func (k *Keeper) debt(t task) time.Duration {
	if t.report == nil {
		return 0
	}
	return k.config.Writes.Wait(t.node)
}

// complain logs what is wrong with what an agent sent, unless that is often.
func (k *Keeper) complain(err error, message string, r ref) {
	if k.logLimiter.Allow(r.node) {
		k.config.Logger.Error(err, message, "cluster", r.node, "pod", r.key.String())
	}
}

// task returns what is to be done about a pod, if anything.
func (k *Keeper) task(r ref) (task, bool) {
	n := k.find(r.node)
	if n == nil {
		return task{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.pods[r.key]
	if !ok || n.muted {
		return task{}, false
	}
	t := task{ref: r, pod: h.latest(), released: h.released}
	own, wait := k.said(n, h)
	if own != nil {
		t.said = *own
		return t, true
	}
	if wait > 0 {
		k.queue.AddAfter(r, wait)
	}
	if h.report == nil {
		return t, k.claimsOthers(n, h)
	}
	said, err := wire.DecodePodStatus(h.report.body)
	if err != nil {
		k.complain(err, "agent sent a status that cannot be read", r)
		h.report = nil
		return task{}, false
	}
	// Of a cluster that is cut off nothing is written. That nothing of a pod is left
	// there stays true.
	current := n.streams > 0 && (n.live || h.report.fresh)
	if !current && !confirms(t.pod, said) {
		return t, k.claimsOthers(n, h)
	}
	t.said, t.report = said, h.report
	return t, true
}

// said returns what the hub itself has to say of a pod, or when to ask again; n.mu
// is held.
func (k *Keeper) said(n *node, h *held) (said *wire.PodStatus, wait time.Duration) {
	if r := k.refusal(h.pod); r != nil {
		return r, 0
	}
	if r := h.unissued(); r != nil {
		return r, 0
	}
	return n.silence(h)
}

// perform writes the status that is due, and then lets go of a pod that has ended.
func (k *Keeper) perform(ctx context.Context, t task) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status := merge(t.pod, t.said, metav1.Now())
	news := k.showAddresses(t, &status)
	defer k.warnOfAddresses(ctx, t, news)
	if !equality.Semantic.DeepEqual(t.pod.Status, status) {
		err := k.write(ctx, t, status)
		last := confirms(t.pod, t.said) && refused(err)
		if err != nil && !last {
			return err
		}
		if last {
			// Its end does not wait for a status that nobody takes.
			k.metrics.wrote(resultRefused)
			k.complain(err, "the last status of a pod is refused", t.ref)
		}
	}
	if confirms(t.pod, t.said) && !t.released {
		return k.release(ctx, t)
	}
	return k.warnOfRefusal(ctx, t)
}

// warnOfRefusal says on a pod, in an event, once what it may not have: that is for whoever
// manages the hub to allow, and controllers show the events of pods that do not start.
func (k *Keeper) warnOfRefusal(ctx context.Context, t task) error {
	if t.report != nil || t.said.Reason != ReasonObjectNotAllowed || t.said.Gone {
		return nil
	}
	due := false
	k.withPod(t.ref, func(h *held) { due = h.pod.UID == t.pod.UID && h.denied != t.said.Message })
	if !due {
		return nil
	}
	if !k.warn(ctx, t.pod, t.said.Reason, t.said.Message) {
		return errNotWarned
	}
	k.withPod(t.ref, func(h *held) { h.denied = t.said.Message })
	return nil
}

// refused tells that the API server judged a status, and would again.
func refused(err error) bool {
	return statuswriter.Refused(err) || apierrors.IsForbidden(err)
}

// performed remembers that a report was acted upon.
func (k *Keeper) performed(t task) {
	k.withPod(t.ref, func(h *held) {
		if t.report != nil && h.report == t.report {
			h.report.fresh = false
		}
	})
}

// write brings the status of a pod from what it was read as to what it shall be.
// Only what differs is written: what others changed meanwhile stays.
func (k *Keeper) write(ctx context.Context, t task, status corev1.PodStatus) error {
	patch, err := difference(t.pod, status)
	if err != nil {
		return err
	}
	size := t.pod.Size() - t.pod.Status.Size() + status.Size()
	k.pace.Spend(t.ref, size)
	k.config.Writes.Spend(t.node, int64(size))
	pods := k.config.Client.CoreV1().Pods(t.key.Namespace)
	written, err := pods.Patch(ctx, t.key.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return errGone
	case apierrors.IsConflict(err):
		k.metrics.wrote(resultConflict)
		return k.reread(ctx, t, err)
	case err != nil:
		return fmt.Errorf("patch status of pod %s: %w", t.key, err)
	}
	k.metrics.wrote(resultWritten)
	if t.report != nil && t.report.fresh {
		k.metrics.latency.Observe(time.Since(t.report.received).Seconds())
	}
	k.remember(t, written)
	return nil
}

// reread finds out whether a conflict was about another pod of that name. If not,
// it is returned, and what is tried again starts from the pod as it is now.
func (k *Keeper) reread(ctx context.Context, t task, conflict error) error {
	pod, err := k.config.Client.CoreV1().Pods(t.key.Namespace).Get(ctx, t.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != t.pod.UID {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("read pod %s: %w", t.key, err)
	}
	k.remember(t, pod)
	return conflict
}

// remember keeps a pod as the API server answered it, until the watch has it.
func (k *Keeper) remember(t task, pod *corev1.Pod) {
	n := k.find(t.node)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h, ok := n.pods[t.key]; ok && h.pod.UID == pod.UID {
		h.own = trim(pod)
	}
}

// difference is the patch from the status of a pod to another, for that very pod.
func difference(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(map[string]any{"status": pod.Status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	// The API server takes the UID for the condition that it is.
	after, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare statuses: %w", err)
	}
	return patch, nil
}

// confirms tells whether a pod waits for being let go of, and may be.
func confirms(pod *corev1.Pod, said wire.PodStatus) bool {
	released := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return said.Gone && pod.DeletionTimestamp != nil && !released
}

// release confirms a deletion, as a kubelet does when the last container has ended.
func (k *Keeper) release(ctx context.Context, t task) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(t.pod.UID))
	err := k.config.Client.CoreV1().Pods(t.key.Namespace).Delete(ctx, t.key.Name, *options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("release pod %s: %w", t.key, err)
	}
	if err == nil {
		k.withPod(t.ref, func(h *held) { h.released = h.pod.UID == t.pod.UID })
	}
	return nil
}
