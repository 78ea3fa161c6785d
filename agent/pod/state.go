// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/spokelet/spokelet/agent/pod/translate"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
)

// namespacedName is the name of a pod in the spoke.
type namespacedName = types.NamespacedName

// podState is all that is known of the pods of one name. It is guarded by Engine.mu,
// want and live may be read without once they are taken from it: they are replaced
// and never changed.
type podState struct {
	name namespacedName
	// key on the hub; not set for a pod in a namespace that no pod of the hub has.
	key wire.PodKey

	desired               *desiredPod
	withdrawn, unreadable bool
	live                  *livePod
	lastSeen              lastSeen
	// final is how the hub's pod was last seen in the spoke, once it is there no more.
	final *finalStatus
	// deletedUID is the last pod of the spoke that was deleted; what is said of it later
	// is late.
	deletedUID types.UID

	// applied is the want that the spoke's pod is brought to.
	applied *desiredPod
	// finished is the want for which nothing runs any more.
	finished *desiredPod
	// absentStatus says why there is no pod; nil while there is one or nothing is known.
	absentStatus *wire.PodStatus
	// warned is the want of the last event about an update.
	warned *desiredPod
	// annotationReport is the pod of the hub, and what the last event about its annotations named.
	annotationReport annotationReport

	references map[wire.PodObjectKey]struct{}
	events     eventLog
	// lastAction is what a worker did last about the name.
	lastAction podAction
}

// podAction is an action for one pod of the hub, or for one that it does not know.
type podAction struct {
	what action
	uid  types.UID
}

// annotationReport is what the hub was told of the annotations of one pod.
type annotationReport struct {
	uid     types.UID
	leftOut string
}

// startAction takes what is done now, and tells whether it is something else than before;
// Engine.mu is held.
func (en *podState) startAction(what action) bool {
	before := en.lastAction
	en.lastAction = podAction{what: what}
	if en.desired != nil {
		en.lastAction.uid = en.desired.uid
	}
	return en.lastAction != before
}

// finalStatus is the last status of a pod.
type finalStatus struct {
	hubUID types.UID
	status corev1.PodStatus
}

// lastStatus is the last status of the pod that is wanted, nil if it is not known. A
// kubelet writes it and deletes the pod at once: the hub may not have it.
func (e *Engine) lastStatus(en *podState, w *desiredPod) *corev1.PodStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.final == nil || en.final.hubUID != w.uid {
		return nil
	}
	return &en.final.status
}

// desiredPod is one version of a pod of the hub.
type desiredPod struct {
	desiredState
	generation int64
	// group is that of the nodes that the pod is bound to, empty for the rest.
	group string
	// splitLabel is the label that the hub's record of the cluster consents to.
	splitLabel string
	// pod is what is to be in the spoke; nil when refusal says why it may not.
	pod     *corev1.Pod
	refusal error
	// partialRefusal says what of the pod the spoke does not take, when it takes the rest.
	partialRefusal error
	// leftOutAnnotations names the annotations that the spoke's owner does not let in.
	leftOutAnnotations string
	refs               []wire.PodObjectKey
	received           time.Time
	// namespaceUID is that of the pod's namespace on the hub, empty while it is not known.
	namespaceUID types.UID
}

// livePod is one version of a pod of the spoke, without managed fields.
type livePod struct {
	liveState
	pod  *corev1.Pod
	refs []wire.PodObjectKey
}

func newLiveState(pod *corev1.Pod) liveState {
	p := liveState{
		uid:      pod.UID,
		hubUID:   types.UID(pod.Labels[translate.LabelHubPodUID]),
		hasEnded: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		deleting: pod.DeletionTimestamp != nil,
	}
	if pod.DeletionGracePeriodSeconds != nil {
		p.grace = *pod.DeletionGracePeriodSeconds
	}
	return p
}

// runsDesired tells whether the spoke's pod is the hub's that is wanted.
func (en *podState) runsDesired() bool {
	return en.desired != nil && en.live != nil && en.live.hubUID == en.desired.uid
}

// referencedObjects are the objects that the pods of the name use.
func (en *podState) referencedObjects() map[wire.PodObjectKey]struct{} {
	refs := map[wire.PodObjectKey]struct{}{}
	if en.desired != nil && (en.live != nil || en.finished != en.desired) {
		for _, key := range en.desired.refs {
			refs[key] = struct{}{}
		}
	}
	if en.live != nil {
		for _, key := range en.live.refs {
			refs[key] = struct{}{}
		}
	}
	return refs
}

// hubKey is the name on the hub of a pod in the spoke.
func (e *Engine) hubKey(at namespacedName) (wire.PodKey, bool) {
	namespace, ok := e.hubNamespace(at.Namespace)
	return wire.PodKey{Namespace: namespace, Name: at.Name}, ok
}

// decisionInput of an entry; e.mu is held.
func (e *Engine) decisionInput(en *podState) decisionInput {
	s := decisionInput{
		podsListed: e.podsListed, hubSynced: e.hubSynced,
		withdrawn: en.withdrawn, unreadable: en.unreadable,
		lastSeen: en.lastSeen, applied: en.applied == en.desired,
	}
	if en.desired != nil {
		s.desired = &en.desired.desiredState
		s.objectsKnown = e.objectsKnown(en.desired)
	}
	if en.live != nil {
		s.live = &en.live.liveState
		_, s.forceDeleted = e.forcedDeletions[en.live.hubUID]
	}
	return s
}

// objectsKnown tells whether the hub has told of all that a pod refers to; e.mu is held.
func (e *Engine) objectsKnown(w *desiredPod) bool {
	return !slices.ContainsFunc(w.refs, func(key wire.PodObjectKey) bool {
		o := e.objects[key]
		return o == nil || o.desired == nil
	})
}

// getOrCreatePod returns the entry of a place, made if need be; e.mu is held.
func (e *Engine) getOrCreatePod(at namespacedName) *podState {
	if en, ok := e.pods[at]; ok {
		return en
	}
	en := &podState{name: at, references: map[wire.PodObjectKey]struct{}{}}
	if key, ok := e.hubKey(at); ok {
		en.key = key
	}
	e.pods[at] = en
	return en
}

// updateReferences makes an entry a user of what its pods refer to, and of nothing else; e.mu
// is held. It returns what nobody uses any more.
func (e *Engine) updateReferences(en *podState) []wire.PodObjectKey {
	refs := en.referencedObjects()
	for key := range refs {
		if _, held := en.references[key]; !held {
			e.getOrCreateObject(key).addUser(en.name)
		}
	}
	var unused []wire.PodObjectKey
	for key := range en.references {
		if _, still := refs[key]; !still && e.getOrCreateObject(key).removeUser(en.name) {
			unused = append(unused, key)
			e.queue.Add(queueItem{object: key})
		}
	}
	en.references = refs
	return unused
}

// updateApplied finds out whether the spoke's pod is as it is wanted; e.mu is held.
func (en *podState) updateApplied() {
	if en.applied == en.desired || !en.runsDesired() || en.desired.pod == nil {
		return
	}
	if translate.ComputeChanges(en.desired.pod, en.live.pod).Empty() {
		en.applied = en.desired
	}
}

// setLive takes what a pod of the spoke is now, nil when it is gone; e.mu is held.
func (e *Engine) setLive(en *podState, now *livePod) {
	if (en.live == nil) != (now == nil) {
		e.countPodsOf(en.name.Namespace, now != nil)
	}
	if now != nil && (en.live == nil || en.live.uid != now.uid) {
		en.applied = nil
	}
	if now != nil {
		before := en.lastSeen.uid == now.uid && en.lastSeen.hasEnded
		en.lastSeen = lastSeen{uid: now.uid, hubUID: now.hubUID, hasEnded: before || now.hasEnded && !now.deleting}
	}
	en.live = now
	e.updateReferences(en)
}

// newLivePod is what is kept of a pod of the spoke.
func (e *Engine) newLivePod(pod *corev1.Pod, before *livePod) *livePod {
	pod.ManagedFields = nil
	now := &livePod{liveState: newLiveState(pod), pod: pod}
	if before != nil && before.uid == now.uid && len(before.pod.Spec.EphemeralContainers) == len(pod.Spec.EphemeralContainers) {
		now.refs = before.refs
		return now
	}
	if namespace, ok := e.hubNamespace(pod.Namespace); ok {
		now.refs = referencedCopies(pod, namespace)
	}
	return now
}

// objectKeys are the objects that a pod of the hub refers to.
func objectKeys(refs []podrefs.Ref, namespace string) []wire.PodObjectKey {
	var keys []wire.PodObjectKey
	for _, ref := range refs {
		keys = append(keys, wire.PodObjectKey{Kind: ref.Kind, Namespace: namespace, Name: ref.Name})
	}
	return keys
}

// observePod takes a pod of the spoke as it is now, from the watch or as the answer to
// a write, and tells the hub.
func (e *Engine) observePod(pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := namespacedName{Namespace: pod.Namespace, Name: pod.Name}
	en := e.getOrCreatePod(at)
	if pod.UID == en.deletedUID {
		return
	}
	before := en.live
	if before != nil && before.uid == pod.UID && !isNewer(pod.ResourceVersion, before.pod.ResourceVersion) {
		return
	}
	now := e.newLivePod(pod, before)
	e.setLive(en, now)
	en.updateApplied()
	e.publishStatus(en)
	e.publishEarlyEvents(en)
	// Most events are of the status, and ask for nothing.
	if before == nil || before.liveState != now.liveState || en.applied != en.desired {
		e.queue.Add(queueItem{pod: at})
	}
}

// observePodDeleted takes that a pod of the spoke is gone; last is how it was then, nil if that
// is not known.
func (e *Engine) observePodDeleted(at namespacedName, uid types.UID, last *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	en, ok := e.pods[at]
	if !ok {
		return
	}
	if last != nil && en.live != nil && en.live.uid == uid {
		en.live = &livePod{liveState: en.live.liveState, pod: last, refs: en.live.refs}
	}
	e.removeLive(en, uid)
}

// removeLive is vanish; e.mu is held.
func (e *Engine) removeLive(en *podState, uid types.UID) {
	en.deletedUID = uid
	if en.live == nil || en.live.uid != uid {
		return
	}
	en.final = &finalStatus{hubUID: en.live.hubUID, status: en.live.pod.Status}
	e.setLive(en, nil)
	e.queue.Add(queueItem{pod: en.name})
	// What it took of a quota is free again. A few are woken, each in its turn, as a map
	// has no order: those that fail again would fill the workers' time.
	woken := 0
	for at := range e.retried {
		if at.Namespace != en.name.Namespace {
			continue
		}
		e.queue.Add(queueItem{pod: at})
		if woken++; woken == maxRetriedAtOnce {
			return
		}
	}
}

// maxRetriedAtOnce is how many of those that were refused are tried again when a pod of
// their namespace has ended.
const maxRetriedAtOnce = 8

// observePodList takes that the spoke had the pods with these UIDs, and no others, at a
// version.
func (e *Engine) observePodList(seen map[types.UID]struct{}, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range e.pods {
		if en.live == nil {
			continue
		}
		// One that we made since is not missing.
		if _, ok := seen[en.live.uid]; !ok && !isNewer(en.live.pod.ResourceVersion, version) {
			e.removeLive(en, en.live.uid)
		}
	}
	e.listError = nil
	if e.podsListed {
		return
	}
	e.podsListed = true
	e.collector.handlePodsKnown()
	for at := range e.pods {
		e.queue.Add(queueItem{pod: at})
	}
	for key := range e.objects {
		e.queue.Add(queueItem{object: key})
	}
	e.completeSources()
}

// isNewer tells whether resourceVersion a is later than b; what cannot be compared
// is.
func isNewer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// deleteState drops an entry that neither side has; e.mu is held.
func (e *Engine) deleteState(en *podState) {
	en.finished = en.desired
	e.updateReferences(en)
	delete(e.retried, en.name)
	delete(e.pods, en.name)
	e.collector.handlePodForgotten(en.name.Namespace)
	if en.key.Name != "" {
		e.statuses.Delete(en.key.String())
	}
	for _, key := range en.events.keys {
		e.events.Delete(key)
	}
}

// Locate tells where a pod of the hub is in the spoke, and the UID of the hub's pod
// that it runs for; false when it is not there.
func (e *Engine) Locate(key wire.PodKey) (namespace string, uid types.UID, ok bool) {
	at := e.spokeName(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	en, known := e.pods[at]
	if !known || en.live == nil {
		return "", "", false
	}
	return at.Namespace, en.live.hubUID, true
}

// countStates counts the pods by what they are.
func (e *Engine) countStates() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]int{stateWaiting: 0, stateRefused: 0, statePending: 0, stateRunning: 0, stateEnded: 0, stateDeleting: 0}
	for en := range maps.Values(e.pods) {
		out[en.stateLabel()]++
	}
	return out
}
