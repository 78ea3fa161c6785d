// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/ratelimit"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonNotSent: nothing has been heard of the pod. The first report takes it
	// back.
	ReasonNotSent = "NotSent"

	notConnected = "the cluster is not connected; the pod is sent when it is"
	notTaken     = "the agent of the cluster takes no pods: it is of an earlier version, or its option pods.enabled is false"

	// responseTimeout is how long a pod waits for the first word about it before that
	// is said.
	responseTimeout = 10 * time.Second
)

// agentErrorLog logs what is wrong with what agents send, unless that is often.
type agentErrorLog struct {
	logger  logr.Logger
	limiter ratelimit.LogLimiter
}

func (l *agentErrorLog) log(err error, message string, r podRef) {
	if l.limiter.Allow(r.cluster) {
		l.logger.Error(err, message, "cluster", r.cluster, "pod", r.key.String())
	}
}

// report is what an agent said last of a pod.
type report struct {
	body []byte
	// pending: it was not acted upon yet.
	pending  bool
	received time.Time
}

// hasPodStatus reports whether there is a report of a pod that is in the cluster.
func (r *report) hasPodStatus() bool {
	if r == nil {
		return false
	}
	said, err := wire.DecodePodStatus(r.body)
	return err == nil && said.Status != nil
}

// hasEnded reports whether nothing runs for a pod any more.
func (r *report) hasEnded() bool {
	if r == nil {
		return false
	}
	said, err := wire.DecodePodStatus(r.body)
	return err == nil && (said.Gone || said.Status != nil && hasEnded(said.Status.Phase))
}

// agentMessage is something of an agent about a pod.
type agentMessage struct {
	kind string
	resource.Resource
}

// handleStatus takes a status from an agent. It runs on the stream's goroutine.
func (c *Controller) handleStatus(cluster string, r resource.Resource) {
	c.handleMessage(cluster, agentMessage{kind: wire.KindPodStatus, Resource: r})
}

// maxDecoded bounds what a report may take in memory once it is decoded, in bytes: many
// times what the largest status of an agent of ours takes. Every writer decodes one.
const maxDecoded = 4 << 20

// isWithinLimits tells whether an agent of ours would say so much. What is said is kept.
func (a agentMessage) isWithinLimits() bool {
	limit := wire.PodStatusMaxBytes
	if a.kind == wire.KindPodEvent {
		limit = wire.PodEventMaxBytes
	}
	return len(a.Body) <= limit && quota.DecodedJSON(a.Body) <= maxDecoded
}

func (c *Controller) handleMessage(cluster string, a agentMessage) {
	if !a.isWithinLimits() {
		c.config.Logger.V(1).Info("agent says too much of a pod", "cluster", cluster, "key", a.Key, "bytes", len(a.Body))
		return
	}
	n := c.getCluster(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.applyMessage(n, a)
}

// applyMessage takes what is about a pod that is there; n.mu is held. What an agent can
// make us hold is bounded by what the hub's users made.
func (c *Controller) applyMessage(n *clusterState, a agentMessage) {
	if a.kind == wire.KindPodEvent {
		c.events.enqueueEvent(n, a.Resource)
		return
	}
	key, err := wire.ParsePodKey(a.Key)
	if err != nil {
		c.agentErrors.log(err, "agent sent a status that cannot be read", podRef{cluster: n.name})
		return
	}
	p, ok := n.pods[key]
	if !ok || p.pod.UID != types.UID(a.UID) || !p.published {
		return // of an earlier pod of that name
	}
	p.report = &report{body: keepFinalStatus(p.report, a.Body), pending: true, received: time.Now()}
	c.queue.Add(podRef{cluster: n.name, key: key})
}

// keepFinalStatus returns a report with the status of the one before, if that was not
// acted upon yet and this one says that nothing is left: how a pod ended comes right
// before its end.
func keepFinalStatus(before *report, body []byte) []byte {
	if before == nil || !before.pending {
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

// deleteStatus forgets a status that the agent does not have any more.
func (c *Controller) deleteStatus(cluster, key string) {
	parsed, err := wire.ParsePodKey(key)
	if err != nil {
		return
	}
	n := c.getCluster(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, ok := n.pods[parsed]; ok {
		p.report = nil
	}
}

// handleSynced: from here on the reports are what there is in the cluster, and what
// others wrote over them while it was cut off is written again.
func (c *Controller) handleSynced(cluster string) {
	n := c.getCluster(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reportsComplete = true
	c.enqueueWhere(n, func(p *podState) bool { return p.report != nil })
}

// restartResponseTimer gives the cluster time for its first word; n.mu is held.
func (c *Controller) restartResponseTimer(n *clusterState) {
	n.connectionChanged = time.Now()
	c.enqueueWhere(n, (*podState).isUnreported)
}

// enqueueWhere queues the pods of a cluster that are due; n.mu is held.
func (c *Controller) enqueueWhere(n *clusterState, due func(*podState) bool) {
	for key, p := range n.pods {
		if due(p) {
			c.queue.Add(podRef{cluster: n.name, key: key})
		}
	}
}

// isUnreported tells that nothing was heard of a pod yet.
func (p *podState) isUnreported() bool {
	pod := p.latest()
	return p.published && p.report == nil && !wasInCluster(pod) && !hasEnded(pod.Status.Phase)
}

// noResponseStatus says of a pod that waits why, if there is anything to say, or after what
// time there may be; n.mu is held. Nothing is said before the agent was asked, which
// is when the pods of all of its nodes are known.
func (n *clusterState) noResponseStatus(p *podState) (said *wire.PodStatus, wait time.Duration) {
	if !p.isUnreported() || n.reportsComplete || !n.wasComplete {
		return nil, 0
	}
	since := p.firstSeen
	if n.connectionChanged.After(since) {
		since = n.connectionChanged
	}
	wait = responseTimeout - time.Since(since)
	leaving := p.latest().DeletionTimestamp != nil
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
