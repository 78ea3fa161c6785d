// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package connlimit

import (
	"net"
	"testing"
)

// address is a peer's as a transport prints it.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func TestHostOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		peer   net.Addr
		want   string
	}{
		"IPv4":               {"one address is one host", address("192.0.2.7:50000"), "192.0.2.7"},
		"another port":       {"ports are free to choose", address("192.0.2.7:1"), "192.0.2.7"},
		"IPv4 in IPv6":       {"a socket of both families prints it so", address("[::ffff:192.0.2.7]:1"), "192.0.2.7"},
		"IPv4 in hex":        {"the same address, spelled differently", address("[::ffff:c000:207]:1"), "192.0.2.7"},
		"IPv6":               {"a host has its /64 to itself", address("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2::/64"},
		"its neighbour":      {"another address of the same network", address("[2001:db8:1:2::9]:1"), "2001:db8:1:2::/64"},
		"another network":    {"another host", address("[2001:db8:1:3::9]:1"), "2001:db8:1:3::/64"},
		"link local, zoned":  {"a zone is this machine's name for a link", address("[fe80::1%eth0]:1"), "fe80::/64"},
		"a TCP address":      {"what listeners return", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 5}, "192.0.2.7"},
		"a socket of a file": {"no IP address", &net.UnixAddr{Name: "/run/x", Net: "unix"}, ""},
		"a name":             {"no IP address", address("pipe"), ""},
		"none":               {"a caller without a connection", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HostOf(tc.peer); got != tc.want {
				t.Errorf("HostOf(%v) = %q, want %q: %s", tc.peer, got, tc.want, tc.reason)
			}
		})
	}
}
