// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"strings"
)

// Mode is a way in which the network between a spoke and the hub fails.
type Mode string

// The modes. A dropped packet is lost in silence, as by a dead link or a
// stateful firewall that forgot the connection; a reset answers every TCP
// packet with RST, so that an idle connection notices at its next packet.
const (
	None        Mode = "none"
	Drop        Mode = "drop"          // both ways
	DropToHub   Mode = "drop-to-hub"   // what the spoke sends
	DropFromHub Mode = "drop-from-hub" // what the hub sends
	Reset       Mode = "reset"         // both ways
)

// ErrMode is returned for a mode that does not exist.
var ErrMode = errors.New("unknown mode")

// Modes lists the failures.
func Modes() []Mode { return []Mode{Drop, DropToHub, DropFromHub, Reset} }

// Faults gives the iptables-restore(8) lines of a chain that applies the mode to
// packets matched by toHub and fromHub. Restoring it with --noflush replaces
// that chain as one transaction and leaves all others alone.
func Faults(chain string, mode Mode, toHub, fromHub string) (string, error) {
	const (
		drop  = "-j DROP"
		reset = "-p tcp -j REJECT --reject-with tcp-reset"
	)
	rules := map[Mode][]string{
		None:        nil,
		Drop:        {toHub + " " + drop, fromHub + " " + drop},
		DropToHub:   {toHub + " " + drop},
		DropFromHub: {fromHub + " " + drop},
		Reset:       {toHub + " " + reset, fromHub + " " + reset},
	}
	wanted, known := rules[mode]
	if !known {
		return "", fmt.Errorf("fault %q: %w (there are %v)", mode, ErrMode, Modes())
	}
	var text strings.Builder
	fmt.Fprintf(&text, "*filter\n:%s - [0:0]\n", chain)
	for _, rule := range wanted {
		fmt.Fprintf(&text, "-A %s %s\n", chain, rule)
	}
	text.WriteString("COMMIT\n")
	return text.String(), nil
}

// chain is the set's own chain; both tables use the name.
func chain(slot int) string { return fmt.Sprintf("SPOKELET-%d", slot) }

// faultChain is the chain of the faults between one spoke and the hub.
func (p Plan) faultChain() string { return fmt.Sprintf("SPOKELET-%d-%d", p.Slot, p.Index) }

// filter gives the iptables-restore lines of a set's filter. Interfaces are
// matched, not addresses, so that pods and translated packets are caught alike.
// Faults come first: they stop established connections too.
func filter(hub Plan, spokes []Plan) string {
	var text strings.Builder
	main := chain(hub.Slot)
	fmt.Fprintf(&text, "*filter\n:%s - [0:0]\n", main)
	for _, spoke := range spokes {
		fmt.Fprintf(&text, ":%s - [0:0]\n", spoke.faultChain())
		fmt.Fprintf(&text, "-A %s -j %s\n", main, spoke.faultChain())
	}
	links := append([]Plan{hub}, spokes...)
	for _, link := range links {
		// Of its own links alone: what one set accepts, another could not cut.
		fmt.Fprintf(&text, "-A %s -o %s -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n", main, link.Link())
	}
	for _, spoke := range spokes {
		fmt.Fprintf(&text, "-A %s -i %s -o %s -j ACCEPT\n", main, spoke.Link(), hub.Link())
		// Nobody opens a connection to a spoke: not the hub, not another spoke,
		// not the outside. The machine itself may (OUTPUT, not FORWARD).
		fmt.Fprintf(&text, "-A %s -o %s -j REJECT\n", main, spoke.Link())
	}
	for _, link := range links {
		fmt.Fprintf(&text, "-A %s -i %s -j ACCEPT\n", main, link.Link())
	}
	text.WriteString("COMMIT\n")
	fmt.Fprintf(&text, "*nat\n:%s - [0:0]\n", main)
	fmt.Fprintf(&text, "-A %s -s %s ! -d %s -j MASQUERADE\n", main, Block(hub.Slot), Block(hub.Slot))
	text.WriteString("COMMIT\n")
	return text.String()
}
