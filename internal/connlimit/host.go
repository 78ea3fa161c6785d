// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package connlimit

import (
	"net"
	"net/netip"
)

// HostOf returns the IPv4 address of a peer, or its /64 network in IPv6, which one
// host has to itself; "" for peers without an IP address, who share one count.
// An IPv4 address is the same in its IPv6 form (RFC 4291, 2.5.5.2).
func HostOf(peer net.Addr) string {
	if peer == nil {
		return ""
	}
	remote, err := netip.ParseAddrPort(peer.String())
	if err != nil {
		return ""
	}
	address := remote.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	// An IPv6 address has 128 bits: 64 are never too many.
	return netip.PrefixFrom(address, 64).Masked().String()
}
