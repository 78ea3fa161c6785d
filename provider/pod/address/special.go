// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"net/netip"
)

// errNoAddress: a text is not one address that leads somewhere by itself.
var errNoAddress = errors.New("is not an IP address in its usual form")

// parse reads an address. One with a zone, or an IPv4 address in the form of IPv6, is
// none: such spellings pass by whatever compares addresses.
func parse(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, errNoAddress
	}
	return addr, nil
}

// specialRanges are the ranges of RFC 6890 whose addresses lead to the machine itself, its
// link, many machines at once, or by translation to any IPv4 address, and the fixed
// addresses at which clouds serve their machines' credentials.
var specialRanges = []struct {
	what     string
	prefixes []netip.Prefix
}{
	{"is unspecified", prefixes("0.0.0.0/8", "::/128")},
	{"is a loopback address", prefixes("127.0.0.0/8", "::1/128")},
	{"is a link-local address", prefixes("169.254.0.0/16", "fe80::/10")},
	{"is a multicast address", prefixes("224.0.0.0/4", "ff00::/8")},
	{"is reserved", prefixes("192.0.0.0/24", "240.0.0.0/4", "fec0::/10")},
	{"stands for an IPv4 address", prefixes("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")},
	{"is a cloud's metadata service", prefixes("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/64", "fd20:ce::254/128")},
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// specialUse says what an address is that nobody may have; empty for any other.
func specialUse(addr netip.Addr) string {
	for _, s := range specialRanges {
		for _, p := range s.prefixes {
			if p.Contains(addr) {
				return s.what
			}
		}
	}
	return ""
}
