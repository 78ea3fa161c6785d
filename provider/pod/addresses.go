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

// droppedShown bounds the addresses that an event names.
const droppedShown = 4

// addressesOf are the addresses of a pod and of its machine, the main one first.
func addressesOf(s *corev1.PodStatus) (pod, host []string) {
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
func (k *Keeper) chooseAddresses(cluster string, was, s *corev1.PodStatus) addressChoice {
	pod, host := addressesOf(s)
	allowed, ok := k.consents.of(cluster)
	if !ok || !k.network.Known() {
		wasPod, wasHost := addressesOf(was)
		return addressChoice{pod: address.Keep(pod, wasPod), host: address.Keep(host, wasHost)}
	}
	return addressChoice{
		pod:   k.network.Choose(pod, allowed.Addresses),
		host:  k.network.Choose(host, allowed.Addresses),
		final: true,
	}
}

// showAddresses leaves in the status of a pod the addresses that the hub shows, and
// returns what an event is to say of the others, if anything.
func (k *Keeper) showAddresses(t task, s *corev1.PodStatus) (news string) {
	choice := k.chooseAddresses(t.node, &t.pod.Status, s)
	setAddresses(s, choice.pod.Shown, choice.host.Shown)
	dropped := choice.dropped()
	// What the hub itself says of a pod has the addresses that were shown before.
	if t.report != nil {
		k.withPod(t.ref, func(h *held) { h.dropped = len(dropped) > 0 })
	}
	if !choice.final || len(dropped) == 0 {
		return ""
	}
	more := ""
	if n := len(dropped) - droppedShown; n > 0 {
		dropped, more = dropped[:droppedShown], fmt.Sprintf("; and %d more", n)
	}
	return "address of the pod or its machine in the cluster not shown: " + strings.Join(dropped, "; ") + more
}

// warnOfAddresses says once on a pod which of its addresses are not shown.
func (k *Keeper) warnOfAddresses(ctx context.Context, t task, message string) {
	if message == "" {
		return
	}
	due := false
	k.withPod(t.ref, func(h *held) {
		due = h.warned != message && h.pod.UID == t.pod.UID && h.allowance.take()
	})
	if !due || !k.warn(context.WithoutCancel(ctx), t.pod, ReasonPodAddressDropped, message) {
		return
	}
	k.withPod(t.ref, func(h *held) { h.warned = message })
}

// claimsOthers reports whether the hub shows an address for a pod that is not, or not
// any more, its cluster's to have; n.mu is held.
func (k *Keeper) claimsOthers(n *node, h *held) bool {
	status := &h.latest().Status
	return len(k.chooseAddresses(n.name, status, status).dropped()) > 0
}

// reviewAddresses looks at the addresses of all pods again. It takes the locks of all
// nodes, one after the other.
func (k *Keeper) reviewAddresses() {
	k.mu.Lock()
	names := slices.Collect(maps.Keys(k.nodes))
	k.mu.Unlock()
	for _, name := range names {
		k.reviewAddressesOf(name)
	}
}

func (k *Keeper) reviewAddressesOf(cluster string) {
	n := k.find(cluster)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	k.queueWhere(n, func(h *held) bool { return h.dropped || k.claimsOthers(n, h) })
}
