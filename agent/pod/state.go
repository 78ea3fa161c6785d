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

// place is the name of a pod in the spoke.
type place = types.NamespacedName

// entry is all that is known of the pods of one name. It is guarded by Engine.mu,
// want and live may be read without once they are taken from it: they are replaced
// and never changed.
type entry struct {
	place place
	// key on the hub; not set for a pod in a namespace that no pod of the hub has.
	key wire.PodKey

	want                  *wanted
	withdrawn, unreadable bool
	live                  *live
	last                  memory
	// final is how the hub's pod was last seen in the spoke, once it is there no more.
	final *final
	// gone is the last pod of the spoke that was deleted; what is said of it later
	// is late.
	gone types.UID

	// brought is the want that the spoke's pod is brought to.
	brought *wanted
	// over is the want for which nothing runs any more.
	over *wanted
	// verdict says why there is no pod; nil while there is one or nothing is known.
	verdict *wire.PodStatus
	// complained is the want of the last event about an update.
	complained *wanted
	// noted is the pod of the hub, and what the last event about its annotations named.
	noted noted

	held   map[wire.PodObjectKey]struct{}
	events journal
	// doing is what a worker did last about the name.
	doing task
}

// task is an action for one pod of the hub, or for one that it does not know.
type task struct {
	what action
	uid  types.UID
}

// noted is what the hub was told of the annotations of one pod.
type noted struct {
	uid     types.UID
	leftOut string
}

// begin takes what is done now, and tells whether it is something else than before;
// Engine.mu is held.
func (en *entry) begin(what action) bool {
	before := en.doing
	en.doing = task{what: what}
	if en.want != nil {
		en.doing.uid = en.want.uid
	}
	return en.doing != before
}

// final is the last status of a pod.
type final struct {
	hubUID types.UID
	status corev1.PodStatus
}

// finalOf is the last status of the pod that is wanted, nil if it is not known. A
// kubelet writes it and deletes the pod at once: the hub may not have it.
func (e *Engine) finalOf(en *entry, w *wanted) *corev1.PodStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	if en.final == nil || en.final.hubUID != w.uid {
		return nil
	}
	return &en.final.status
}

// wanted is one version of a pod of the hub.
type wanted struct {
	demand
	generation int64
	// group is that of the nodes that the pod is bound to, empty for the rest.
	group string
	// splitLabel is the label that the hub's record of the cluster consents to.
	splitLabel string
	// pod is what is to be in the spoke; nil when refusal says why it may not.
	pod     *corev1.Pod
	refusal error
	// partly says what of the pod the spoke does not take, when it takes the rest.
	partly error
	// leftOutAnnotations names the annotations that the spoke's owner does not let in.
	leftOutAnnotations string
	refs               []wire.PodObjectKey
	received           time.Time
	// namespaceUID is that of the pod's namespace on the hub, empty while it is not known.
	namespaceUID types.UID
}

// live is one version of a pod of the spoke, without managed fields.
type live struct {
	presence
	pod  *corev1.Pod
	refs []wire.PodObjectKey
}

func presenceOf(pod *corev1.Pod) presence {
	p := presence{
		uid:      pod.UID,
		hubUID:   types.UID(pod.Labels[translate.LabelHubPodUID]),
		ended:    pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		deleting: pod.DeletionTimestamp != nil,
	}
	if pod.DeletionGracePeriodSeconds != nil {
		p.grace = *pod.DeletionGracePeriodSeconds
	}
	return p
}

// mine tells whether the spoke's pod is the hub's that is wanted.
func (en *entry) mine() bool {
	return en.want != nil && en.live != nil && en.live.hubUID == en.want.uid
}

// refs are the objects that the pods of the name use.
func (en *entry) refs() map[wire.PodObjectKey]struct{} {
	refs := map[wire.PodObjectKey]struct{}{}
	if en.want != nil && (en.live != nil || en.over != en.want) {
		for _, key := range en.want.refs {
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
func (e *Engine) hubKey(at place) (wire.PodKey, bool) {
	namespace, ok := e.hubNamespace(at.Namespace)
	return wire.PodKey{Namespace: namespace, Name: at.Name}, ok
}

// situation of an entry; e.mu is held.
func (e *Engine) situation(en *entry) situation {
	s := situation{
		listed: e.listed, synced: e.synced,
		withdrawn: en.withdrawn, unreadable: en.unreadable,
		last: en.last, brought: en.brought == en.want,
	}
	if en.want != nil {
		s.want = &en.want.demand
		s.told = e.told(en.want)
	}
	if en.live != nil {
		s.live = &en.live.presence
		_, s.forced = e.forced[en.live.hubUID]
	}
	return s
}

// told tells whether the hub has told of all that a pod refers to; e.mu is held.
func (e *Engine) told(w *wanted) bool {
	return !slices.ContainsFunc(w.refs, func(key wire.PodObjectKey) bool {
		o := e.objects[key]
		return o == nil || o.want == nil
	})
}

// entryAt returns the entry of a place, made if need be; e.mu is held.
func (e *Engine) entryAt(at place) *entry {
	if en, ok := e.entries[at]; ok {
		return en
	}
	en := &entry{place: at, held: map[wire.PodObjectKey]struct{}{}}
	if key, ok := e.hubKey(at); ok {
		en.key = key
	}
	e.entries[at] = en
	return en
}

// relink makes an entry a user of what its pods refer to, and of nothing else; e.mu
// is held. It returns what nobody uses any more.
func (e *Engine) relink(en *entry) []wire.PodObjectKey {
	refs := en.refs()
	for key := range refs {
		if _, held := en.held[key]; !held {
			e.objectAt(key).use(en.place)
		}
	}
	var unused []wire.PodObjectKey
	for key := range en.held {
		if _, still := refs[key]; !still && e.objectAt(key).release(en.place) {
			unused = append(unused, key)
			e.queue.Add(item{object: key})
		}
	}
	en.held = refs
	return unused
}

// match finds out whether the spoke's pod is as it is wanted; e.mu is held.
func (en *entry) match() {
	if en.brought == en.want || !en.mine() || en.want.pod == nil {
		return
	}
	if translate.Change(en.want.pod, en.live.pod).Empty() {
		en.brought = en.want
	}
}

// setLive takes what a pod of the spoke is now, nil when it is gone; e.mu is held.
func (e *Engine) setLive(en *entry, now *live) {
	if (en.live == nil) != (now == nil) {
		e.count(en.place.Namespace, now != nil)
	}
	if now != nil && (en.live == nil || en.live.uid != now.uid) {
		en.brought = nil
	}
	if now != nil {
		before := en.last.uid == now.uid && en.last.ended
		en.last = memory{uid: now.uid, hubUID: now.hubUID, ended: before || now.ended && !now.deleting}
	}
	en.live = now
	e.relink(en)
}

// liveOf is what is kept of a pod of the spoke.
func (e *Engine) liveOf(pod *corev1.Pod, before *live) *live {
	pod.ManagedFields = nil
	now := &live{presence: presenceOf(pod), pod: pod}
	if before != nil && before.uid == now.uid && len(before.pod.Spec.EphemeralContainers) == len(pod.Spec.EphemeralContainers) {
		now.refs = before.refs
		return now
	}
	if namespace, ok := e.hubNamespace(pod.Namespace); ok {
		now.refs = copiesOf(pod, namespace)
	}
	return now
}

// refsOf are the objects that a pod of the hub refers to.
func refsOf(refs []podrefs.Ref, namespace string) []wire.PodObjectKey {
	var keys []wire.PodObjectKey
	for _, ref := range refs {
		keys = append(keys, wire.PodObjectKey{Kind: ref.Kind, Namespace: namespace, Name: ref.Name})
	}
	return keys
}

// observe takes a pod of the spoke as it is now, from the watch or as the answer to
// a write, and tells the hub.
func (e *Engine) observe(pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := place{Namespace: pod.Namespace, Name: pod.Name}
	en := e.entryAt(at)
	if pod.UID == en.gone {
		return
	}
	before := en.live
	if before != nil && before.uid == pod.UID && !newer(pod.ResourceVersion, before.pod.ResourceVersion) {
		return
	}
	now := e.liveOf(pod, before)
	e.setLive(en, now)
	en.match()
	e.publish(en)
	e.publishEarly(en)
	// Most events are of the status, and ask for nothing.
	if before == nil || before.presence != now.presence || en.brought != en.want {
		e.queue.Add(item{place: at})
	}
}

// vanish takes that a pod of the spoke is gone; last is how it was then, nil if that
// is not known.
func (e *Engine) vanish(at place, uid types.UID, last *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	en, ok := e.entries[at]
	if !ok {
		return
	}
	if last != nil && en.live != nil && en.live.uid == uid {
		en.live = &live{presence: en.live.presence, pod: last, refs: en.live.refs}
	}
	e.dropLive(en, uid)
}

// dropLive is vanish; e.mu is held.
func (e *Engine) dropLive(en *entry, uid types.UID) {
	en.gone = uid
	if en.live == nil || en.live.uid != uid {
		return
	}
	en.final = &final{hubUID: en.live.hubUID, status: en.live.pod.Status}
	e.setLive(en, nil)
	e.queue.Add(item{place: en.place})
	// What it took of a quota is free again. A few are woken, each in its turn, as a map
	// has no order: those that fail again would fill the workers' time.
	woken := 0
	for at := range e.failing {
		if at.Namespace != en.place.Namespace {
			continue
		}
		e.queue.Add(item{place: at})
		if woken++; woken == wakeAtOnce {
			return
		}
	}
}

// wakeAtOnce is how many of those that were refused are tried again when a pod of
// their namespace has ended.
const wakeAtOnce = 8

// resync takes that the spoke had the pods with these UIDs, and no others, at a
// version.
func (e *Engine) resync(seen map[types.UID]struct{}, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range e.entries {
		if en.live == nil {
			continue
		}
		// One that we made since is not missing.
		if _, ok := seen[en.live.uid]; !ok && !newer(en.live.pod.ResourceVersion, version) {
			e.dropLive(en, en.live.uid)
		}
	}
	e.blind = nil
	if e.listed {
		return
	}
	e.listed = true
	e.collector.podsKnown()
	for at := range e.entries {
		e.queue.Add(item{place: at})
	}
	for key := range e.objects {
		e.queue.Add(item{object: key})
	}
	e.conclude()
}

// newer tells whether resourceVersion a is later than b; what cannot be compared
// is.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// forget drops an entry that neither side has; e.mu is held.
func (e *Engine) forget(en *entry) {
	en.over = en.want
	e.relink(en)
	delete(e.failing, en.place)
	delete(e.entries, en.place)
	e.collector.podForgotten(en.place.Namespace)
	if en.key.Name != "" {
		e.statuses.Delete(en.key.String())
	}
	for _, key := range en.events.keys {
		e.happenings.Delete(key)
	}
}

// Locate tells where a pod of the hub is in the spoke, and the UID of the hub's pod
// that it runs for; false when it is not there.
func (e *Engine) Locate(key wire.PodKey) (namespace string, uid types.UID, ok bool) {
	at := e.placeOf(key)
	e.mu.Lock()
	defer e.mu.Unlock()
	en, known := e.entries[at]
	if !known || en.live == nil {
		return "", "", false
	}
	return at.Namespace, en.live.hubUID, true
}

// states counts the pods by what they are.
func (e *Engine) states() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]int{stateWaiting: 0, stateRefused: 0, statePending: 0, stateRunning: 0, stateEnded: 0, stateDeleting: 0}
	for en := range maps.Values(e.entries) {
		out[en.state()]++
	}
	return out
}
