// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
)

// Streams of one cluster's session that are open for the kubelet endpoints of all its
// nodes. The caller is the hub's API server whoever asks it, so that streams are
// counted by what is asked for. A namespace is shared by those who trust each other:
// what one takes leaves some to the others, and what one pod takes some to its
// namespace.
const (
	maxStreams            = 1280 // logs, exec, attach and port-forward
	maxStreamsOfNamespace = 1152
	maxStreamsOfPod       = 1024
	maxLogsOfPod          = 64

	// maxMetricsRequests is for answers with figures: 64 groups of nodes and the rest, asked
	// by two at once.
	maxMetricsRequests = 130
)

// streamLimits bound the open streams of sessions. Its zero value has no bounds.
type streamLimits struct {
	// doors are all doors' streams of a cluster, of which these are a part.
	doors *quota.Slots

	clusters, namespaces, pods, logs, figures *quota.Slots
}

func newStreamLimits(doors *quota.Slots) streamLimits {
	each := func(n int64) *quota.Slots { return quota.NewSlots(math.MaxInt64, n) }
	return streamLimits{
		doors: doors, clusters: each(maxStreams), namespaces: each(maxStreamsOfNamespace),
		pods: each(maxStreamsOfPod), logs: each(maxLogsOfPod), figures: each(maxMetricsRequests),
	}
}

// acquirePod counts a stream of a pod until leave is called, which may be more than once.
// The error is a refusal (429).
func (c streamLimits) acquirePod(node string, pod *corev1.Pod, log bool) (leave func(), err error) {
	cluster, _ := wire.ParseNodeName(node)
	// No part of the name has a slash.
	namespace := cluster + "/" + pod.Namespace
	name := namespace + "/" + pod.Name
	shares := []quota.Share{
		{Slots: c.pods, Holder: name, What: "streams of one pod are open"},
		{Slots: c.namespaces, Holder: namespace, What: "streams of pods of one namespace are open"},
		{Slots: c.clusters, Holder: cluster, What: "streams of pods are open"},
		{Slots: c.doors, Holder: cluster, What: "streams of users are open"},
	}
	if log {
		shares = append(shares, quota.Share{Slots: c.logs, Holder: name, What: "logs of one pod are being read"})
	}
	return acquireAll(cluster, shares...)
}

// acquireMetrics is acquirePod for an answer with figures.
func (c streamLimits) acquireMetrics(node string) (leave func(), err error) {
	cluster, _ := wire.ParseNodeName(node)
	return acquireAll(cluster, quota.Share{Slots: c.figures, Holder: cluster, What: "figures are being read"})
}

// acquireAll acquires all shares or none. The error is a refusal (429).
func acquireAll(cluster string, shares ...quota.Share) (leave func(), err error) {
	leave, full := quota.TakeAll(shares...)
	if full != nil {
		return nil, &refusal{http.StatusTooManyRequests,
			fmt.Sprintf("cluster %q: too many %s: limit %d", cluster, full.What, full.Slots.Each())}
	}
	return leave, nil
}
