// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"fmt"
	"net/netip"
	"slices"
)

// Choice is what is shown of the addresses that a cluster reports.
type Choice struct {
	// Shown is at most one address of each family, as Kubernetes has it.
	Shown []string
	// Dropped says of each other one why it is not shown.
	Dropped []string
}

// reportedMax bounds the addresses that are looked at.
const reportedMax = 16

// Choose chooses from the addresses of a report, the first of which is the main one.
func (n *Network) Choose(reported []string, limit Limit) Choice {
	return choose(reported, func(addr netip.Addr) string { return n.dropReason(addr, limit) })
}

// ChooseShown chooses those that are shown already: nothing else can be said of addresses while
// the network is not known.
func ChooseShown(reported, shown []string) Choice {
	return choose(reported, func(addr netip.Addr) string {
		switch what := specialUse(addr); {
		case what != "":
			return what
		case !slices.Contains(shown, addr.String()):
			return "cannot be judged yet"
		}
		return ""
	})
}

func choose(reported []string, refuses func(netip.Addr) string) Choice {
	var c Choice
	seen := make([]string, 0, 2)
	var four, six bool
	for _, text := range reported {
		if text == "" || slices.Contains(seen, text) {
			continue
		}
		if seen = append(seen, text); len(seen) > reportedMax {
			break
		}
		addr, err := parse(text)
		if err != nil {
			c.Dropped = append(c.Dropped, fmt.Sprintf("%.64q %s", text, err))
			continue
		}
		if why := refuses(addr); why != "" {
			c.Dropped = append(c.Dropped, addr.String()+" "+why)
			continue
		}
		taken := &four
		if addr.Is6() {
			taken = &six
		}
		if !*taken {
			*taken = true
			c.Shown = append(c.Shown, addr.String())
		}
	}
	return c
}
