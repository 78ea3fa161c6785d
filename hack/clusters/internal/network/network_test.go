// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestAllocatePicksABlockThatNobodyUses(t *testing.T) {
	var all []int
	for slot := range slots {
		all = append(all, slot)
	}
	cases := map[string]struct {
		reason string
		used   []int
		taken  []netip.Prefix
		want   int
		err    error
	}{
		"an empty machine": {
			reason: "the lowest comes first, so that addresses are the same every time",
			taken:  prefixes("0.0.0.0/0", "192.168.0.0/24"),
			want:   0,
		},
		"two sets with a gap between": {
			reason: "what a removed set left is used again",
			used:   []int{0, 2},
			want:   1,
		},
		"a network of the machine's own inside the block": {
			reason: "its hosts could not be reached any more",
			used:   []int{1},
			taken:  prefixes("10.192.7.0/24"),
			want:   2,
		},
		"a network that covers the first blocks": {
			reason: "overlap counts in both directions",
			taken:  prefixes("10.192.0.0/14"),
			want:   4,
		},
		"all in use": {
			reason: "two sets must not share addresses",
			used:   all,
			err:    ErrExhausted,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Allocate(tc.used, tc.taken)
			if !errors.Is(err, tc.err) || got != tc.want {
				t.Errorf("slot %d, %v; want %d, %v: %s", got, err, tc.want, tc.err, tc.reason)
			}
		})
	}
}

func TestPlansOfDifferentClustersNeverOverlap(t *testing.T) {
	seen := make(map[string]string)
	var all []netip.Prefix
	for slot := range slots {
		for index := range Clusters {
			plan := Plan{Slot: slot, Index: index}
			link := netip.PrefixFrom(plan.Gateway(), 30).Masked()
			own := append(prefixes(link.String()), plan.Pods(), plan.Services())
			for _, prefix := range own {
				if prefix != prefix.Masked() {
					t.Errorf("%s is not the beginning of a network", prefix)
				}
				if !Block(slot).Overlaps(prefix) || Block(slot).Bits() > prefix.Bits() {
					t.Errorf("%s is outside of %s", prefix, Block(slot))
				}
				if owner, ok := seen[prefix.String()]; ok {
					t.Errorf("%s is used twice, by %s", prefix, owner)
				}
				seen[prefix.String()] = plan.Link()
			}
			if !link.Contains(plan.Host()) || plan.Host() == plan.Gateway() {
				t.Errorf("%s and %s are not the two ends of %s", plan.Host(), plan.Gateway(), link)
			}
			if len(plan.Link()) > 15 {
				t.Errorf("interface %s is longer than the kernel allows", plan.Link())
			}
			all = append(all, own...)
		}
	}
	// Sorted by construction within a cluster and across them: neighbours tell.
	for i := 1; i < len(all); i++ {
		if all[i].Overlaps(all[i-1]) {
			t.Errorf("%s overlaps %s", all[i], all[i-1])
		}
	}
}

func TestFaultsReplaceTheChainAsAWhole(t *testing.T) {
	cases := map[string]struct {
		reason string
		mode   Mode
		want   string
		err    error
	}{
		"none": {
			reason: "healing is an empty chain",
			mode:   None,
			want:   "*filter\n:C - [0:0]\nCOMMIT\n",
		},
		"drop": {
			reason: "a dead link is dead both ways",
			mode:   Drop,
			want:   "*filter\n:C - [0:0]\n-A C -i s -j DROP\n-A C -i h -j DROP\nCOMMIT\n",
		},
		"drop to the hub": {
			reason: "the hub's packets still arrive: what a half-open connection is made of",
			mode:   DropToHub,
			want:   "*filter\n:C - [0:0]\n-A C -i s -j DROP\nCOMMIT\n",
		},
		"drop from the hub": {
			reason: "the spoke's packets still arrive",
			mode:   DropFromHub,
			want:   "*filter\n:C - [0:0]\n-A C -i h -j DROP\nCOMMIT\n",
		},
		"reset": {
			reason: "only TCP has resets; the rest passes",
			mode:   Reset,
			want: "*filter\n:C - [0:0]\n-A C -i s -p tcp -j REJECT --reject-with tcp-reset\n" +
				"-A C -i h -p tcp -j REJECT --reject-with tcp-reset\nCOMMIT\n",
		},
		"a mode that does not exist": {
			reason: "no fault must not pass for one",
			mode:   "slow",
			err:    ErrMode,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Faults("C", tc.mode, "-i s", "-i h")
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v: %s", err, tc.err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rules (-want +got): %s\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFilterPutsFaultsFirstAndLetsNobodyIntoASpoke(t *testing.T) {
	const want = `*filter
:SPOKELET-3 - [0:0]
:SPOKELET-3-1 - [0:0]
-A SPOKELET-3 -j SPOKELET-3-1
:SPOKELET-3-2 - [0:0]
-A SPOKELET-3 -j SPOKELET-3-2
-A SPOKELET-3 -o spk3-0 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A SPOKELET-3 -o spk3-1 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A SPOKELET-3 -o spk3-2 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A SPOKELET-3 -i spk3-1 -o spk3-0 -j ACCEPT
-A SPOKELET-3 -o spk3-1 -j REJECT
-A SPOKELET-3 -i spk3-2 -o spk3-0 -j ACCEPT
-A SPOKELET-3 -o spk3-2 -j REJECT
-A SPOKELET-3 -i spk3-0 -j ACCEPT
-A SPOKELET-3 -i spk3-1 -j ACCEPT
-A SPOKELET-3 -i spk3-2 -j ACCEPT
COMMIT
*nat
:SPOKELET-3 - [0:0]
-A SPOKELET-3 -s 10.195.0.0/16 ! -d 10.195.0.0/16 -j MASQUERADE
COMMIT
`
	got := filter(Plan{Slot: 3}, []Plan{{Slot: 3, Index: 1}, {Slot: 3, Index: 2}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// Sets come after each other in FORWARD: what one accepts, no later one can cut.
func TestASetJudgesOnlyPacketsOfItsOwnLinks(t *testing.T) {
	rules, _, _ := strings.Cut(filter(Plan{Slot: 3}, []Plan{{Slot: 3, Index: 1}}), "*nat")
	for rule := range strings.Lines(rules) {
		if strings.Contains(rule, "-j ACCEPT") && !strings.Contains(rule, " spk3-") {
			t.Errorf("accepts packets of anybody: %s", rule)
		}
	}
}

func TestParseRoutesReadsTheKernelsTable(t *testing.T) {
	const heading = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
	cases := map[string]struct {
		reason string
		table  string
		want   []netip.Prefix
		err    error
	}{
		"a default route and a network": {
			reason: "addresses are in the machine's byte order (little endian where tests run)",
			table: heading + "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
				"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
			want: prefixes("0.0.0.0/0", "192.0.2.0/24"),
		},
		"no routes": {
			reason: "a machine without a network has no conflicts",
			table:  heading,
		},
		"a short line": {
			reason: "what is not understood must not pass for free",
			table:  heading + "eth0\t00000000\n",
			err:    errRoute,
		},
		"an address that is none": {
			reason: "the same",
			table:  heading + "eth0\tzz\t0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
			err:    errRoute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseRoutes(tc.table)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v: %s", err, tc.err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("networks (-want +got): %s\n%s", tc.reason, diff)
			}
		})
	}
}
