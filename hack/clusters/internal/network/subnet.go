// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network lays out and builds the network of a set of clusters on one
// machine: a network namespace per cluster with a veth pair to the root
// namespace, which routes between them as the internet would, and the filter
// that lets spokes open connections to the hub and nobody open one to a spoke.
package network

import (
	"errors"
	"fmt"
	"net/netip"
)

// Clusters is how many clusters, the hub included, one set can have.
const Clusters = 16

// slots is how many sets can exist at a time: one /16 each from 10.192.0.0 on.
const slots = 32

// ErrExhausted is returned when every block of addresses is taken.
var ErrExhausted = errors.New("no block of addresses is free")

// Block is the /16 of the set in that slot.
func Block(slot int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(192 + slot), 0, 0}), 16) //nolint:gosec // slot < slots
}

// Allocate picks the lowest slot that no other set uses and whose block touches
// none of the machine's own networks.
func Allocate(used []int, taken []netip.Prefix) (int, error) {
	busy := make(map[int]bool, len(used))
	for _, slot := range used {
		busy[slot] = true
	}
	for slot := range slots {
		if !busy[slot] && !overlaps(Block(slot), taken) {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("sets of clusters: %w", ErrExhausted)
}

func overlaps(block netip.Prefix, taken []netip.Prefix) bool {
	for _, prefix := range taken {
		// A default route covers everything and says nothing about use.
		if prefix.Bits() > 0 && block.Overlaps(prefix) {
			return true
		}
	}
	return false
}

// Plan is the addresses and names of one cluster's network.
type Plan struct {
	Slot, Index int
	Namespace   string // name of the network namespace
}

// part is the first address of the cluster's /20 plus an offset.
func (p Plan) part(third, fourth byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(192 + p.Slot), byte(16*p.Index) + third, fourth}) //nolint:gosec // Slot < slots, Index < Clusters
}

// Gateway is the root namespace's end of the link.
func (p Plan) Gateway() netip.Addr { return p.part(0, 1) }

// Host is the cluster's end of the link: its node, as others see it.
func (p Plan) Host() netip.Addr { return p.part(0, 2) }

// Pods is the network of the cluster's pods.
func (p Plan) Pods() netip.Prefix { return netip.PrefixFrom(p.part(4, 0), 22) }

// Services is the range of the cluster's ClusterIPs.
func (p Plan) Services() netip.Prefix { return netip.PrefixFrom(p.part(8, 0), 21) }

// KubernetesService is the ClusterIP of the API server: the first of the range.
func (p Plan) KubernetesService() netip.Addr { return p.Services().Addr().Next() }

// DNSService is the address that a cluster's DNS would have, by custom the tenth of
// the Services. None is installed.
func (p Plan) DNSService() netip.Addr {
	addr := p.Services().Addr()
	for range 10 {
		addr = addr.Next()
	}
	return addr
}

// Link is the name of the interface in the root namespace (at most 15 bytes).
func (p Plan) Link() string { return fmt.Sprintf("spk%d-%d", p.Slot, p.Index) }

// Path is where the namespace is bound.
func (p Plan) Path() string { return "/var/run/netns/" + p.Namespace }
