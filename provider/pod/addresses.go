// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/spokelet/spokelet/provider/pod/address"
)

// ReasonPodAddressDropped: the cluster reports an address that the hub does not show for
// the pod, as it is somebody else's there.
const ReasonPodAddressDropped = "PodAddressDropped"

// maxHiddenNamed bounds the addresses that an event names.
const maxHiddenNamed = 4

// podAndHostAddresses are the addresses of a pod and of its machine, the main one first.
func podAndHostAddresses(s *corev1.PodStatus) (pod, host []string) {
	pod, host = []string{s.PodIP}, []string{s.HostIP}
	for _, ip := range s.PodIPs {
		pod = append(pod, ip.IP)
	}
	for _, ip := range s.HostIPs {
		host = append(host, ip.IP)
	}
	return pod, host
}

// setAddresses makes the main address the first of the list, as API servers demand.
func setAddresses(s *corev1.PodStatus, pod, host []string) {
	s.PodIP, s.PodIPs, s.HostIP, s.HostIPs = "", nil, "", nil
	for _, ip := range pod {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	for _, ip := range host {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(pod) > 0 {
		s.PodIP = pod[0]
	}
	if len(host) > 0 {
		s.HostIP = host[0]
	}
}

// addressChoice is what came of the addresses in the status of a pod.
type addressChoice struct {
	pod, host address.Choice
	// final: the network of the hub and the record of the cluster are known.
	final bool
}

func (c addressChoice) dropped() []string { return slices.Concat(c.pod.Dropped, c.host.Dropped) }

// chooseAddresses looks at the addresses of a status, the one before which is was.
func (c *Controller) chooseAddresses(cluster string, was, s *corev1.PodStatus) addressChoice {
	pod, host := podAndHostAddresses(s)
	allowed, ok := c.consents.get(cluster)
	if !ok || !c.network.Known() {
		wasPod, wasHost := podAndHostAddresses(was)
		return addressChoice{pod: address.ChooseShown(pod, wasPod), host: address.ChooseShown(host, wasHost)}
	}
	return addressChoice{
		pod:   c.network.Choose(pod, allowed.Addresses),
		host:  c.network.Choose(host, allowed.Addresses),
		final: true,
	}
}

// filterAddresses leaves in the status of a pod the addresses that the hub shows, and
// returns what an event is to say of the others, if anything.
func (c *Controller) filterAddresses(t statusUpdate, s *corev1.PodStatus) (news string) {
	choice := c.chooseAddresses(t.cluster, &t.pod.Status, s)
	setAddresses(s, choice.pod.Shown, choice.host.Shown)
	dropped := choice.dropped()
	// What the hub itself says of a pod has the addresses that were shown before.
	if t.report != nil {
		c.updatePod(t.podRef, func(p *podState) { p.hasHiddenAddresses = len(dropped) > 0 })
	}
	if !choice.final || len(dropped) == 0 {
		return ""
	}
	more := ""
	if n := len(dropped) - maxHiddenNamed; n > 0 {
		dropped, more = dropped[:maxHiddenNamed], fmt.Sprintf("; and %d more", n)
	}
	return "address of the pod or its machine in the cluster not shown: " + strings.Join(dropped, "; ") + more
}

// recordHiddenAddresses says once on a pod which of its addresses are not shown.
func (c *Controller) recordHiddenAddresses(ctx context.Context, t statusUpdate, message string) {
	if message == "" {
		return
	}
	due := false
	c.updatePod(t.podRef, func(p *podState) {
		due = p.addressWarning != message && p.pod.UID == t.pod.UID && p.eventLimit.allow()
	})
	if !due || !c.events.recordWarning(context.WithoutCancel(ctx), t.pod, ReasonPodAddressDropped, message) {
		return
	}
	c.updatePod(t.podRef, func(p *podState) { p.addressWarning = message })
}

// showsForeignAddress reports whether the hub shows an address for a pod that is not, or not
// any more, its cluster's to have; n.mu is held.
func (c *Controller) showsForeignAddress(n *clusterState, p *podState) bool {
	status := &p.latest().Status
	return len(c.chooseAddresses(n.name, status, status).dropped()) > 0
}

// recheckAddresses looks at the addresses of all pods again. It takes the locks of all
// nodes, one after the other.
func (c *Controller) recheckAddresses() {
	c.mu.Lock()
	names := slices.Collect(maps.Keys(c.clusters))
	c.mu.Unlock()
	for _, name := range names {
		c.recheckClusterAddresses(name)
	}
}

func (c *Controller) recheckClusterAddresses(cluster string) {
	n := c.getCluster(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.enqueueWhere(n, func(p *podState) bool { return p.hasHiddenAddresses || c.showsForeignAddress(n, p) })
}
