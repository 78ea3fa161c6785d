// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"slices"
	"sync"
)

// Source is where a Network knows ranges from.
type Source int

// The sources of a Network.
const (
	Services   Source = iota // ServiceCIDRs
	Nodes                    // the hub's Nodes that are not virtual
	APIServers               // the endpoints of the Service default/kubernetes
	sources
)

// Usage is what one object of a source uses.
type Usage struct {
	// ranges are those of Services, or of a node's pods.
	ranges []netip.Prefix
	// addresses are those of a node or an API server.
	addresses []netip.Addr
}

// ParseUsage reads what an object says. What cannot be read is left out: API servers
// have checked it.
func ParseUsage(ranges, addresses []string) Usage {
	var c Usage
	for _, text := range ranges {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			c.ranges = append(c.ranges, prefix.Masked())
		}
	}
	for _, text := range addresses {
		if addr, err := netip.ParseAddr(text); err == nil { // a node's may be a name
			c.addresses = append(c.addresses, addr.Unmap().WithZone(""))
		}
	}
	return c
}

func (c Usage) isEqual(other Usage) bool {
	return slices.Equal(c.ranges, other.ranges) && slices.Equal(c.addresses, other.addresses)
}

// Network is what the hub itself uses. It is safe for concurrent use.
type Network struct {
	hubAddress netip.Addr
	changed    func()

	mu     sync.RWMutex // guards what follows
	usages [sources]map[string]Usage
	// known: a source has been listed.
	known [sources]bool
	// ranges and addresses count who claims each.
	ranges    [sources]prefixCounter
	addresses [sources]prefixCounter
	// nodesWithoutRange counts the nodes that do not say which range their pods have.
	nodesWithoutRange int
}

// NewNetwork returns a Network of which nothing is known but the hub's own address.
// changed is called after each change, without a lock; it must not block.
func NewNetwork(own netip.Addr, changed func()) *Network {
	n := &Network{hubAddress: own.Unmap(), changed: changed}
	for i := range sources {
		n.usages[i], n.ranges[i], n.addresses[i] = map[string]Usage{}, prefixCounter{}, prefixCounter{}
	}
	return n
}

// Replace takes all objects of a source.
func (n *Network) Replace(from Source, all map[string]Usage) {
	n.mu.Lock()
	news := !n.known[from]
	n.known[from] = true
	for name := range n.usages[from] {
		if _, ok := all[name]; !ok {
			news = n.set(from, name, nil) || news
		}
	}
	for name, claim := range all {
		news = n.set(from, name, &claim) || news
	}
	n.mu.Unlock()
	if news {
		n.changed()
	}
}

// Put takes an object of a source that is new or changed.
func (n *Network) Put(from Source, name string, claim Usage) { n.change(from, name, &claim) }

// Delete takes that an object of a source is gone.
func (n *Network) Delete(from Source, name string) { n.change(from, name, nil) }

func (n *Network) change(from Source, name string, claim *Usage) {
	n.mu.Lock()
	news := n.set(from, name, claim)
	n.mu.Unlock()
	if news {
		n.changed()
	}
}

// set reports whether anything changed; n.mu is held.
func (n *Network) set(from Source, name string, claim *Usage) bool {
	before, ok := n.usages[from][name]
	if claim != nil && ok && before.isEqual(*claim) || claim == nil && !ok {
		return false
	}
	if ok {
		n.count(from, before, -1)
		delete(n.usages[from], name)
	}
	if claim != nil {
		n.count(from, *claim, 1)
		n.usages[from][name] = *claim
	}
	return true
}

func (n *Network) count(from Source, claim Usage, by int) {
	for _, prefix := range claim.ranges {
		n.ranges[from].count(prefix, by)
	}
	for _, addr := range claim.addresses {
		n.addresses[from].count(netip.PrefixFrom(addr, addr.BitLen()), by)
	}
	if from == Nodes && len(claim.ranges) == 0 {
		n.nodesWithoutRange += by
	}
}

// Known reports whether every source has been listed. Before that no address can be
// judged.
func (n *Network) Known() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return !slices.Contains(n.known[:], false)
}

// dropReason says why the hub does not show an address for a pod of a cluster; empty when
// it does.
func (n *Network) dropReason(addr netip.Addr, limit Limit) string {
	if what := specialUse(addr); what != "" {
		return what
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	switch {
	case addr == n.hubAddress:
		return "is the hub's own"
	case n.ranges[Services].contains(addr):
		return "is in a Service range of the hub"
	case n.addresses[APIServers].contains(addr):
		return "is that of an API server of the hub"
	case n.addresses[Nodes].contains(addr):
		return "is that of a node of the hub"
	case n.ranges[Nodes].contains(addr):
		return "is in a pod range of the hub"
	case !limit.allows(addr):
		return "is not in a range that the cluster's record allows"
	case !limit.isSet && n.nodesWithoutRange > 0 && n.nodesWithoutRange == len(n.usages[Nodes]):
		return "may be a pod's of the hub, whose nodes have no spec.podCIDRs, and the cluster's record names no ranges"
	}
	return ""
}

// prefixCounter counts prefixes, and how many of them have each length, so that a lookup costs
// as much as there are lengths.
type prefixCounter map[int]map[netip.Prefix]int

func (s prefixCounter) count(prefix netip.Prefix, by int) {
	of := s[prefix.Bits()]
	if of == nil {
		of = map[netip.Prefix]int{}
		s[prefix.Bits()] = of
	}
	if of[prefix] += by; of[prefix] <= 0 {
		delete(of, prefix)
	}
	if len(of) == 0 {
		delete(s, prefix.Bits())
	}
}

func (s prefixCounter) contains(addr netip.Addr) bool {
	for bits, of := range s {
		if prefix, err := addr.Prefix(bits); err == nil && of[prefix] > 0 {
			return true
		}
	}
	return false
}
