// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonNotSent: nothing has been heard of the pod. The first report takes it
	// back.
	ReasonNotSent = "NotSent"

	notConnected = "the cluster is not connected; the pod is sent when it is"
	notTaken     = "the agent of the cluster takes no pods: it is of an earlier version, or its option pods.enabled is false"

	// answerWithin is how long a pod waits for the first word about it before that
	// is said.
	answerWithin = 10 * time.Second
)

// report is what an agent said last of a pod.
type report struct {
	body []byte
	// fresh: it was not acted upon yet.
	fresh    bool
	received time.Time
}

// tellsOfOne reports whether there is a report of a pod that is in the cluster.
func (r *report) tellsOfOne() bool {
	if r == nil {
		return false
	}
	said, err := wire.DecodePodStatus(r.body)
	return err == nil && said.Status != nil
}

// tellsOfEnd reports whether nothing runs for a pod any more.
func (r *report) tellsOfEnd() bool {
	if r == nil {
		return false
	}
	said, err := wire.DecodePodStatus(r.body)
	return err == nil && (said.Gone || said.Status != nil && ended(said.Status.Phase))
}

// arrival is something of an agent about a pod.
type arrival struct {
	kind string
	resource.Resource
}

// receive takes a status from an agent. It runs on the stream's goroutine.
func (k *Keeper) receive(cluster string, r resource.Resource) {
	k.arrive(cluster, arrival{kind: wire.KindPodStatus, Resource: r})
}

// maxDecoded bounds what a report may take in memory once it is decoded, in bytes: many
// times what the largest status of an agent of ours takes. Every writer decodes one.
const maxDecoded = 4 << 20

// fits tells whether an agent of ours would say so much. What is said is kept.
func (a arrival) fits() bool {
	limit := wire.PodStatusMaxBytes
	if a.kind == wire.KindPodEvent {
		limit = wire.PodEventMaxBytes
	}
	return len(a.Body) <= limit && quota.DecodedJSON(a.Body) <= maxDecoded
}

func (k *Keeper) arrive(cluster string, a arrival) {
	if !a.fits() {
		k.config.Logger.V(1).Info("agent says too much of a pod", "cluster", cluster, "key", a.Key, "bytes", len(a.Body))
		return
	}
	n := k.find(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	k.arrived(n, a)
}

// arrived takes what is about a pod that is there; n.mu is held. What an agent can
// make us hold is bounded by what the hub's users made.
func (k *Keeper) arrived(n *node, a arrival) {
	if a.kind == wire.KindPodEvent {
		k.takeEvent(n, a.Resource)
		return
	}
	key, err := wire.ParsePodKey(a.Key)
	if err != nil {
		k.complain(err, "agent sent a status that cannot be read", ref{node: n.name})
		return
	}
	h, ok := n.pods[key]
	if !ok || h.pod.UID != types.UID(a.UID) || !h.sent {
		return // of an earlier pod of that name
	}
	h.report = &report{body: lastWords(h.report, a.Body), fresh: true, received: time.Now()}
	k.queue.Add(ref{node: n.name, key: key})
}

// lastWords returns a report with the status of the one before, if that was not
// acted upon yet and this one says that nothing is left: how a pod ended comes right
// before its end.
func lastWords(before *report, body []byte) []byte {
	if before == nil || !before.fresh {
		return body
	}
	said, err := wire.DecodePodStatus(body)
	if err != nil || !said.Gone || said.Status != nil {
		return body
	}
	last, err := wire.DecodePodStatus(before.body)
	if err != nil || last.Status == nil {
		return body
	}
	said.Status = last.Status
	whole, err := json.Marshal(said)
	if err != nil {
		return body
	}
	return whole
}

// withdrawn forgets a status that the agent does not have any more.
func (k *Keeper) withdrawn(cluster, key string) {
	parsed, err := wire.ParsePodKey(key)
	if err != nil {
		return
	}
	n := k.find(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h, ok := n.pods[parsed]; ok {
		h.report = nil
	}
}

// synced: from here on the reports are what there is in the cluster, and what
// others wrote over them while it was cut off is written again.
func (k *Keeper) synced(cluster string) {
	n := k.find(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.live = true
	k.queueWhere(n, func(h *held) bool { return h.report != nil })
}

// waitAnew gives the cluster time for its first word; n.mu is held.
func (k *Keeper) waitAnew(n *node) {
	n.since = time.Now()
	k.queueWhere(n, (*held).waits)
}

// queueWhere queues the pods of a cluster that are due; n.mu is held.
func (k *Keeper) queueWhere(n *node, due func(*held) bool) {
	for key, h := range n.pods {
		if due(h) {
			k.queue.Add(ref{node: n.name, key: key})
		}
	}
}

// waits tells that nothing was heard of a pod yet.
func (h *held) waits() bool {
	pod := h.latest()
	return h.sent && h.report == nil && !seen(pod) && !ended(pod.Status.Phase)
}

// silence says of a pod that waits why, if there is anything to say, or after what
// time there may be; n.mu is held. Nothing is said before the agent was asked, which
// is when the pods of all of its nodes are known.
func (n *node) silence(h *held) (said *wire.PodStatus, wait time.Duration) {
	if !h.waits() || n.live || !n.complete {
		return nil, 0
	}
	since := h.since
	if n.since.After(since) {
		since = n.since
	}
	wait = answerWithin - time.Since(since)
	leaving := h.latest().DeletionTimestamp != nil
	switch {
	case leaving && n.streams == 0:
		return nil, 0 // it may be there
	case wait > 0:
		return nil, wait
	case leaving:
		// An agent that takes no pods never says that nothing is left. One that is only
		// slow finds the pod gone, and ends it.
		return &wire.PodStatus{Gone: true, Reason: ReasonNotSent, Message: notTaken}, 0
	case n.streams == 0:
		return &wire.PodStatus{Reason: ReasonNotSent, Message: notConnected}, 0
	default:
		return &wire.PodStatus{Reason: ReasonNotSent, Message: notTaken}, 0
	}
}
