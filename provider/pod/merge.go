// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// ReasonPodDeletedInCluster: somebody deleted the pod in its cluster.
	ReasonPodDeletedInCluster = "PodDeletedInCluster"

	podDeleted = "the pod was deleted in its cluster, and not by the hub"

	// maxConditions bounds those of a pod that a spoke may add to.
	maxConditions = 32

	// What a kubelet says in these cases.
	reasonGates      = "ReadinessGatesNotReady"
	reasonPodFailed  = "PodFailed"
	reasonUnknown    = "ContainerStatusUnknown"
	containerUnknown = "The container could not be located when the pod was terminated"
	exitCodeUnknown  = 137
	reasonCreated    = "Created"
	reasonGone       = "Gone"
)

// merge returns the status that a pod of the hub has after a report.
func merge(pod *corev1.Pod, said wire.PodStatus, now metav1.Time) corev1.PodStatus {
	m := &merger{pod: pod, reported: said, now: now, status: *pod.Status.DeepCopy()}
	switch {
	case said.Status != nil:
		m.applyStatus()
	case said.Reason != "" && !said.Gone:
		m.applyRefusal()
	}
	if said.Gone {
		m.applyEnd()
	}
	return m.status
}

// merger makes one status.
type merger struct {
	pod      *corev1.Pod
	reported wire.PodStatus
	now      metav1.Time
	status   corev1.PodStatus
}

// applyStatus makes the status that of the spoke, but for what belongs to the hub. A pod
// that has ended on the hub does not come back to life.
func (m *merger) applyStatus() {
	was := &m.pod.Status
	if hasEnded(was.Phase) && !hasEnded(m.reported.Status.Phase) {
		return
	}
	s := m.reported.Status.DeepCopy()
	s.QOSClass = was.QOSClass
	s.NominatedNodeName = was.NominatedNodeName
	s.ResourceClaimStatuses = was.ResourceClaimStatuses
	s.ExtendedResourceClaimStatus = was.ExtendedResourceClaimStatus
	s.NodeAllocatableResourceClaimStatuses = was.NodeAllocatableResourceClaimStatuses
	s.Conditions = m.mergeConditions()
	if hasEnded(was.Phase) {
		s.Phase, s.Reason, s.Message = was.Phase, was.Reason, was.Message
	}
	if s.Phase == "" {
		s.Phase = corev1.PodPending
	}
	m.status = *s
	m.status.ObservedGeneration = was.ObservedGeneration
	m.updateObservedGeneration()
	if !m.reported.Gone {
		m.setCondition(wire.ConditionInCluster, corev1.ConditionTrue, reasonCreated, "")
	}
	m.setScheduled()
	m.setPendingReason()
	m.applyReadinessGates()
}

// setScheduled says what a kubelet does: that the pod was scheduled, also when it came without
// a scheduler, as it is in the generation that was observed.
func (m *merger) setScheduled() {
	if statusCondition(&m.status, corev1.PodScheduled) == nil {
		m.setCondition(corev1.PodScheduled, corev1.ConditionTrue, "", "")
	}
	scheduled := statusCondition(&m.status, corev1.PodScheduled)
	scheduled.ObservedGeneration = max(scheduled.ObservedGeneration, m.status.ObservedGeneration)
}

// updateObservedGeneration never goes back: a report may be overtaken.
func (m *merger) updateObservedGeneration() {
	m.status.ObservedGeneration = max(m.status.ObservedGeneration, m.reported.Generation)
}

// mergeConditions are those of the spoke, in the places that they have on the hub, and
// those that others on the hub own.
func (m *merger) mergeConditions() []corev1.PodCondition {
	var out []corev1.PodCondition
	theirs := m.reported.Status.Conditions
	for _, ours := range m.pod.Status.Conditions {
		from := findCondition(theirs, ours.Type)
		switch {
		case m.isHubCondition(ours.Type):
			out = append(out, ours)
		case from != nil:
			out = append(out, m.withHubGeneration(*from))
		case !isKubeletCondition(ours.Type):
			out = append(out, ours)
		}
	}
	for _, c := range theirs {
		// Those of a kubelet are few. Others stay when the spoke takes them back, for
		// they may be another's: there must be an end to them.
		if !m.isHubCondition(c.Type) && findCondition(out, c.Type) == nil && (isKubeletCondition(c.Type) || len(out) < maxConditions) {
			out = append(out, m.withHubGeneration(c))
		}
	}
	return out
}

// isHubCondition tells the conditions that nobody in the spoke has a say in: the binding to
// the virtual node, what controllers on the hub add under names of their own, and
// the disruption that one of them has begun.
func (m *merger) isHubCondition(kind corev1.PodConditionType) bool {
	switch kind {
	case corev1.PodScheduled:
		return true
	case corev1.DisruptionTarget:
		return findCondition(m.pod.Status.Conditions, kind) != nil
	default:
		return strings.Contains(string(kind), "/") || m.isReadinessGate(kind)
	}
}

func (m *merger) isReadinessGate(kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(m.pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == kind })
}

// isKubeletCondition tells the conditions that a kubelet adds and takes away.
func isKubeletCondition(kind corev1.PodConditionType) bool {
	switch kind {
	case corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	default:
		return false
	}
}

// withHubGeneration is a condition of the spoke with the generation of the hub's pod.
func (m *merger) withHubGeneration(c corev1.PodCondition) corev1.PodCondition {
	if c.ObservedGeneration > 0 {
		c.ObservedGeneration = max(m.pod.Status.ObservedGeneration, m.reported.Generation)
	}
	return c
}

// setPendingReason says of a pod that waits in the spoke what it waits for.
func (m *merger) setPendingReason() {
	if m.status.Phase != corev1.PodPending || m.status.Reason != "" {
		return
	}
	m.status.Reason, m.status.Message = m.reported.Reason, m.reported.Message
	scheduled := findCondition(m.reported.Status.Conditions, corev1.PodScheduled)
	if m.status.Reason == "" && scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		m.status.Reason, m.status.Message = scheduled.Reason, scheduled.Message
	}
}

// applyReadinessGates has the pod's readiness gates decide, whose conditions are on the hub.
func (m *merger) applyReadinessGates() {
	ready := findCondition(m.status.Conditions, corev1.PodReady)
	if len(m.pod.Spec.ReadinessGates) == 0 || ready == nil || ready.Status != corev1.ConditionTrue && ready.Reason != reasonGates {
		return
	}
	was := findCondition(m.pod.Status.Conditions, corev1.PodReady)
	if was != nil {
		*ready = *was
	}
	var missing []string
	for _, g := range m.pod.Spec.ReadinessGates {
		switch c := findCondition(m.status.Conditions, g.ConditionType); {
		case c == nil:
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case c.Status != corev1.ConditionTrue:
			missing = append(missing, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, c.Status))
		}
	}
	if len(missing) > 0 {
		m.setCondition(corev1.PodReady, corev1.ConditionFalse, reasonGates, strings.Join(missing, ", "))
		return
	}
	m.setCondition(corev1.PodReady, corev1.ConditionTrue, "", "")
}

// applyRefusal says why the pod is not in the spoke.
func (m *merger) applyRefusal() {
	if hasEnded(m.status.Phase) {
		return
	}
	if !wasInCluster(m.pod) {
		m.status.Phase = corev1.PodPending
	}
	m.status.Reason, m.status.Message = m.reported.Reason, m.reported.Message
	m.updateObservedGeneration()
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady} {
		m.setCondition(kind, corev1.ConditionFalse, m.reported.Reason, m.reported.Message)
	}
}

// applyEnd closes the status of a pod of which nothing is left in the spoke, as a
// kubelet does when it does not find the containers any more.
func (m *merger) applyEnd() {
	leaving := m.pod.DeletionTimestamp != nil
	was := wasInCluster(m.pod) || m.reported.Status != nil || m.reported.Lost
	switch {
	case leaving && !was:
		m.failRejected()
		return
	case !leaving && !m.reported.Lost:
		return
	}
	m.setCondition(wire.ConditionInCluster, corev1.ConditionFalse, reasonGone, "")
	if hasEnded(m.status.Phase) {
		// Its kubelet was first to say how it ended, not why.
		if !leaving && m.status.Phase == corev1.PodFailed && m.status.Reason == "" {
			m.setDeletedReason()
		}
		return
	}
	initialized := findCondition(m.status.Conditions, corev1.PodInitialized)
	terminateContainers(m.status.ContainerStatuses, initialized != nil && initialized.Status == corev1.ConditionTrue)
	terminateContainers(m.status.InitContainerStatuses, false)
	terminateContainers(m.status.EphemeralContainerStatuses, false)
	if !leaving {
		m.setDeletedReason()
	}
	m.fail()
}

// failRejected ends a pod that is deleted and never was in the spoke, for the reason that
// kept it out. A kubelet fails such a pod before it goes, too, and some controllers count
// no pod without that: a Job with podReplacementPolicy Failed keeps its finalizer on it.
func (m *merger) failRejected() {
	if hasEnded(m.status.Phase) {
		return
	}
	if m.reported.Reason != "" || m.status.Reason == ReasonNotSent {
		m.status.Reason, m.status.Message = m.reported.Reason, m.reported.Message
	}
	m.updateObservedGeneration()
	m.fail()
}

// fail makes the pod one that has failed.
func (m *merger) fail() {
	m.status.Phase = corev1.PodFailed
	m.setCondition(corev1.ContainersReady, corev1.ConditionFalse, reasonPodFailed, "")
	m.setCondition(corev1.PodReady, corev1.ConditionFalse, reasonPodFailed, "")
}

// setDeletedReason says who ended the pod.
func (m *merger) setDeletedReason() {
	m.status.Reason, m.status.Message = ReasonPodDeletedInCluster, podDeleted
	if m.reported.Message != "" {
		m.status.Message = m.reported.Message
	}
}

// terminateContainers ends the containers that run, and those that wait too.
func terminateContainers(containers []corev1.ContainerStatus, too bool) {
	for i := range containers {
		c := &containers[i]
		if c.State.Terminated != nil || c.State.Running == nil && !too {
			continue
		}
		end := &corev1.ContainerStateTerminated{
			Reason: reasonUnknown, Message: containerUnknown, ExitCode: exitCodeUnknown, ContainerID: c.ContainerID,
		}
		if c.State.Running != nil {
			end.StartedAt = c.State.Running.StartedAt
		}
		c.State = corev1.ContainerState{Terminated: end}
		c.Ready, c.Started = false, new(false)
	}
}

// setCondition sets a condition; the time of its transition stays when its status does.
func (m *merger) setCondition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) {
	next := corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: m.now}
	have := statusCondition(&m.status, kind)
	if have == nil {
		m.status.Conditions = append(m.status.Conditions, next)
		return
	}
	if have.Status == status {
		next.LastTransitionTime = have.LastTransitionTime
	}
	next.LastProbeTime, next.ObservedGeneration = have.LastProbeTime, have.ObservedGeneration
	*have = next
}

func statusCondition(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	return findCondition(s.Conditions, kind)
}

func findCondition(conditions []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}
