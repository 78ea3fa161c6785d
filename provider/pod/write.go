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

// errPodGone: there is no such pod any more.
var errPodGone = errors.New("pod is gone")

// errEventNotWritten: an event of a pod could not be written.
var errEventNotWritten = errors.New("event of the pod is not written")

// statusUpdate is what is to be made true of a pod.
type statusUpdate struct {
	podRef
	pod *corev1.Pod
	// reported is what is to be said of it; report is whence, nil when from the hub.
	reported wire.PodStatus
	report   *report
	// released: the pod was let go of, and the watch has yet to say so.
	released bool
}

func (c *Controller) processNextStatus(ctx context.Context) bool {
	r, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(r)
	// What comes meanwhile replaces the report that waits.
	if wait := c.statusPacer.Delay(r); wait > 0 {
		c.queue.AddAfter(r, wait)
		return true
	}
	t, ok := c.buildStatusUpdate(r)
	if !ok {
		c.queue.Forget(r)
		return true
	}
	if wait := c.writeDelay(t); wait > 0 {
		c.queue.AddAfter(r, wait)
		return true
	}
	err := c.applyStatusUpdate(ctx, t)
	switch {
	case err == nil, errors.Is(err, errPodGone):
	case statuswriter.IsRefused(err):
		// Another try would bring the same: the agent's next report may be better.
		c.metrics.countWrite(resultRefused)
		c.agentErrors.log(err, "the status of a pod is refused", r)
	default:
		c.queue.AddRateLimited(r)
		c.metrics.countWrite(resultError)
		c.config.Logger.V(1).Info("a pod is written again", "node", r.cluster, "pod", r.key.String(), "err", err.Error())
		return true
	}
	c.queue.Forget(r)
	c.markReportProcessed(t)
	return true
}

// writeDelay is how long a task has to wait for what its cluster has had written. What the
// hub itself has to say of a pod does not wait.
func (c *Controller) writeDelay(t statusUpdate) time.Duration {
	if t.report == nil {
		return 0
	}
	return c.config.Writes.Wait(t.cluster)
}

// buildStatusUpdate returns what is to be done about a pod, if anything.
func (c *Controller) buildStatusUpdate(r podRef) (statusUpdate, bool) {
	n := c.getCluster(r.cluster)
	if n == nil {
		return statusUpdate{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[r.key]
	if !ok || n.forgotten {
		return statusUpdate{}, false
	}
	t := statusUpdate{podRef: r, pod: p.latest(), released: p.deletionConfirmed}
	own, wait := c.hubStatus(n, p)
	if own != nil {
		t.reported = *own
		return t, true
	}
	if wait > 0 {
		c.queue.AddAfter(r, wait)
	}
	if p.report == nil {
		return t, c.showsForeignAddress(n, p)
	}
	said, err := wire.DecodePodStatus(p.report.body)
	if err != nil {
		c.agentErrors.log(err, "agent sent a status that cannot be read", r)
		p.report = nil
		return statusUpdate{}, false
	}
	// Of a cluster that is cut off nothing is written. That nothing of a pod is left
	// there stays true.
	current := n.streams > 0 && (n.reportsComplete || p.report.pending)
	if !current && !confirmsDeletion(t.pod, said) {
		return t, c.showsForeignAddress(n, p)
	}
	t.reported, t.report = said, p.report
	return t, true
}

// hubStatus returns what the hub itself has to say of a pod, or when to ask again; n.mu
// is held.
func (c *Controller) hubStatus(n *clusterState, p *podState) (said *wire.PodStatus, wait time.Duration) {
	if r := c.rejectionStatus(p.pod); r != nil {
		return r, 0
	}
	if r := p.missingTokenStatus(); r != nil {
		return r, 0
	}
	return n.noResponseStatus(p)
}

// applyStatusUpdate writes the status that is due, and then lets go of a pod that has ended.
func (c *Controller) applyStatusUpdate(ctx context.Context, t statusUpdate) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	status := merge(t.pod, t.reported, metav1.Now())
	news := c.filterAddresses(t, &status)
	defer c.recordHiddenAddresses(ctx, t, news)
	if !equality.Semantic.DeepEqual(t.pod.Status, status) {
		err := c.patchStatus(ctx, t, status)
		last := confirmsDeletion(t.pod, t.reported) && isRejected(err)
		if err != nil && !last {
			return err
		}
		if last {
			// Its end does not wait for a status that nobody takes.
			c.metrics.countWrite(resultRefused)
			c.agentErrors.log(err, "the last status of a pod is refused", t.podRef)
		}
	}
	if confirmsDeletion(t.pod, t.reported) && !t.released {
		return c.confirmDeletion(ctx, t)
	}
	return c.recordDeniedObject(ctx, t)
}

// recordDeniedObject says on a pod, in an event, once what it may not have: that is for whoever
// manages the hub to allow, and controllers show the events of pods that do not start.
func (c *Controller) recordDeniedObject(ctx context.Context, t statusUpdate) error {
	if t.report != nil || t.reported.Reason != ReasonObjectNotAllowed || t.reported.Gone {
		return nil
	}
	due := false
	c.updatePod(t.podRef, func(p *podState) { due = p.pod.UID == t.pod.UID && p.objectWarning != t.reported.Message })
	if !due {
		return nil
	}
	if !c.events.recordWarning(ctx, t.pod, t.reported.Reason, t.reported.Message) {
		return errEventNotWritten
	}
	c.updatePod(t.podRef, func(p *podState) { p.objectWarning = t.reported.Message })
	return nil
}

// isRejected tells that the API server judged a status, and would again.
func isRejected(err error) bool {
	return statuswriter.IsRefused(err) || apierrors.IsForbidden(err)
}

// markReportProcessed remembers that a report was acted upon.
func (c *Controller) markReportProcessed(t statusUpdate) {
	c.updatePod(t.podRef, func(p *podState) {
		if t.report != nil && p.report == t.report {
			p.report.pending = false
		}
	})
}

// patchStatus brings the status of a pod from what it was read as to what it shall be.
// Only what differs is written: what others changed meanwhile stays.
func (c *Controller) patchStatus(ctx context.Context, t statusUpdate, status corev1.PodStatus) error {
	patch, err := buildStatusPatch(t.pod, status)
	if err != nil {
		return err
	}
	size := t.pod.Size() - t.pod.Status.Size() + status.Size()
	c.statusPacer.Spend(t.podRef, size)
	c.config.Writes.Spend(t.cluster, int64(size))
	pods := c.config.Client.CoreV1().Pods(t.key.Namespace)
	written, err := pods.Patch(ctx, t.key.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return errPodGone
	case apierrors.IsConflict(err):
		c.metrics.countWrite(resultConflict)
		return c.resolveConflict(ctx, t, err)
	case err != nil:
		return fmt.Errorf("patch status of pod %s: %w", t.key, err)
	}
	c.metrics.countWrite(resultWritten)
	if t.report != nil && t.report.pending {
		c.metrics.latency.Observe(time.Since(t.report.received).Seconds())
	}
	c.storeWritten(t, written)
	return nil
}

// resolveConflict finds out whether a conflict was about another pod of that name. If not,
// it is returned, and what is tried again starts from the pod as it is now.
func (c *Controller) resolveConflict(ctx context.Context, t statusUpdate, conflict error) error {
	pod, err := c.config.Client.CoreV1().Pods(t.key.Namespace).Get(ctx, t.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != t.pod.UID {
		return errPodGone
	}
	if err != nil {
		return fmt.Errorf("read pod %s: %w", t.key, err)
	}
	c.storeWritten(t, pod)
	return conflict
}

// storeWritten keeps a pod as the API server answered it, until the watch has it.
func (c *Controller) storeWritten(t statusUpdate, pod *corev1.Pod) {
	n := c.getCluster(t.cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[t.key]; ok && p.pod.UID == pod.UID {
		p.written = trim(pod)
	}
}

// buildStatusPatch is the patch from the status of a pod to another, for that very pod.
func buildStatusPatch(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
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

// confirmsDeletion tells whether a pod waits for being let go of, and may be.
func confirmsDeletion(pod *corev1.Pod, said wire.PodStatus) bool {
	released := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
	return said.Gone && pod.DeletionTimestamp != nil && !released
}

// confirmDeletion confirms a deletion, as a kubelet does when the last container has ended.
func (c *Controller) confirmDeletion(ctx context.Context, t statusUpdate) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(t.pod.UID))
	err := c.config.Client.CoreV1().Pods(t.key.Namespace).Delete(ctx, t.key.Name, *options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("release pod %s: %w", t.key, err)
	}
	if err == nil {
		c.updatePod(t.podRef, func(p *podState) { p.deletionConfirmed = p.pod.UID == t.pod.UID })
	}
	return nil
}
