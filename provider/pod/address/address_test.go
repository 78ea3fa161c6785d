// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hubNetwork is the network of a hub with two nodes and Services of two families.
func hubNetwork() *Network {
	n := NewNetwork(netip.MustParseAddr("10.244.0.9"), func() {})
	n.Replace(Services, map[string]Usage{
		"kubernetes": ParseUsage([]string{"10.96.0.0/12", "fd00:96::/108"}, nil),
	})
	n.Replace(Nodes, map[string]Usage{
		"a": ParseUsage([]string{"10.244.0.0/24", "fd00:244::/64"}, []string{"192.0.2.1", "2001:db8::1", "hub-a"}),
		"b": ParseUsage([]string{"10.244.1.0/24"}, []string{"192.0.2.2"}),
	})
	n.Replace(APIServers, map[string]Usage{"kubernetes": ParseUsage(nil, []string{"198.51.100.6"})})
	return n
}

func limitOf(t testing.TB, text string) Limit {
	t.Helper()
	limit, err := ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func TestChooseDropsAddressesOfTheHub(t *testing.T) {
	within := limitOf(t, "10.1.0.0/16, fd01::/48, 127.0.0.0/8, 10.96.0.0/12")
	cases := map[string]struct {
		reason  string
		address string
		limit   Limit
		// want is part of why it is dropped; empty for one that is shown.
		want string
	}{
		"a pod of the cluster":          {reason: "nothing of the hub is there", address: "10.1.0.7"},
		"of IPv6":                       {reason: "nothing of the hub is there", address: "fd01::7"},
		"public":                        {reason: "the record did not narrow it", address: "203.0.113.7"},
		"loopback":                      {reason: "the API server's own", address: "127.0.0.1", want: "loopback"},
		"any loopback":                  {reason: "all of 127/8 is", address: "127.8.9.1", want: "loopback"},
		"loopback of IPv6":              {reason: "the API server's own", address: "::1", want: "loopback"},
		"unspecified":                   {reason: "dialled, it is the machine itself", address: "0.0.0.0", want: "unspecified"},
		"this network":                  {reason: "dialled, it is the machine itself", address: "0.1.2.3", want: "unspecified"},
		"unspecified of IPv6":           {reason: "dialled, it is the machine itself", address: "::", want: "unspecified"},
		"metadata of clouds":            {reason: "it serves credentials of the hub's machines", address: "169.254.169.254", want: "link-local"},
		"metadata of a cloud by IPv6":   {reason: "it serves credentials of the hub's machines", address: "fd00:ec2::254", want: "metadata"},
		"metadata outside link-local":   {reason: "it serves credentials of the hub's machines", address: "168.63.129.16", want: "metadata"},
		"link-local of IPv6":            {reason: "it is the hub's link", address: "fe80::1", want: "link-local"},
		"with a zone":                   {reason: "it is the hub's link", address: "fe80::1%eth0", want: "usual form"},
		"a global one with a zone":      {reason: "it passes by what compares addresses", address: "fd01::1%eth0", want: "usual form"},
		"multicast":                     {reason: "it leads to many", address: "239.1.1.1", want: "multicast"},
		"multicast of IPv6":             {reason: "it leads to many", address: "ff02::1", want: "multicast"},
		"broadcast":                     {reason: "it leads to many", address: "255.255.255.255", want: "reserved"},
		"mapped":                        {reason: "it is an IPv4 address", address: "::ffff:10.96.0.1", want: "usual form"},
		"mapped, in hexadecimal":        {reason: "it is an IPv4 address", address: "::ffff:7f00:1", want: "usual form"},
		"compatible":                    {reason: "it stands for an IPv4 address", address: "::7f00:1", want: "unspecified|stands for"},
		"translated":                    {reason: "NAT64 leads to 10.96.0.1", address: "64:ff9b::a60:1", want: "stands for"},
		"6to4":                          {reason: "it stands for 10.96.0.1", address: "2002:a60:1::", want: "stands for"},
		"leading zeros":                 {reason: "some read octal", address: "010.1.0.7", want: "usual form"},
		"short":                         {reason: "some read 127.0.0.1", address: "127.1", want: "usual form"},
		"a name":                        {reason: "it is no address", address: "kubernetes.default", want: "usual form"},
		"a CIDR":                        {reason: "it is no address", address: "10.1.0.7/32", want: "usual form"},
		"a Service":                     {reason: "policies would be about it", address: "10.96.0.1", want: "Service range"},
		"a Service of IPv6":             {reason: "policies would be about it", address: "fd00:96::1", want: "Service range"},
		"a pod of the hub":              {reason: "it would get what is another's", address: "10.244.1.20", want: "pod range"},
		"a pod of the hub by IPv6":      {reason: "it would get what is another's", address: "fd00:244::20", want: "pod range"},
		"a node":                        {reason: "its kubelet listens there", address: "192.0.2.2", want: "node of the hub"},
		"a node by IPv6":                {reason: "its kubelet listens there", address: "2001:db8::1", want: "node of the hub"},
		"an API server":                 {reason: "pods/proxy would lead there", address: "198.51.100.6", want: "API server"},
		"the hub's pod":                 {reason: "its kubelet endpoints are there", address: "10.244.0.9", want: "hub's own"},
		"within what the record allows": {reason: "the record names it", address: "10.1.0.7", limit: within},
		"outside":                       {reason: "the record names others", address: "10.2.0.7", limit: within, want: "record allows"},
		"allowed and loopback":          {reason: "a record opens nothing of the hub", address: "127.0.0.1", limit: within, want: "loopback"},
		"allowed and a Service":         {reason: "a record opens nothing of the hub", address: "10.96.0.1", limit: within, want: "Service range"},
		"none allowed":                  {reason: "the record says so", address: "10.1.0.7", limit: limitOf(t, "none"), want: "record allows"},
	}
	network := hubNetwork()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := network.Choose([]string{tc.address}, tc.limit)
			if tc.want == "" {
				if diff := cmp.Diff(Choice{Shown: []string{tc.address}}, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			if len(got.Shown) != 0 || len(got.Dropped) != 1 {
				t.Fatalf("%s: got %+v", tc.reason, got)
			}
			why := false
			for want := range strings.SplitSeq(tc.want, "|") {
				why = why || strings.Contains(got.Dropped[0], want)
			}
			if !why {
				t.Errorf("%s: got %q, want %q", tc.reason, got.Dropped[0], tc.want)
			}
		})
	}
}

func TestChooseShowsOneAddressPerFamily(t *testing.T) {
	cases := map[string]struct {
		reason   string
		reported []string
		want     []string
	}{
		"one twice":                {reason: "podIP is podIPs[0]", reported: []string{"10.1.0.7", "10.1.0.7"}, want: []string{"10.1.0.7"}},
		"two families":             {reason: "a pod has two", reported: []string{"10.1.0.7", "10.1.0.7", "fd01::7"}, want: []string{"10.1.0.7", "fd01::7"}},
		"three":                    {reason: "API servers refuse them", reported: []string{"10.1.0.7", "fd01::7", "10.1.0.8", "fd01::8"}, want: []string{"10.1.0.7", "fd01::7"}},
		"a bad main one":           {reason: "the next becomes it", reported: []string{"10.96.0.1", "10.96.0.1", "fd01::7"}, want: []string{"fd01::7"}},
		"a bad one behind":         {reason: "each is looked at", reported: []string{"10.1.0.7", "10.1.0.7", "::1"}, want: []string{"10.1.0.7"}},
		"another main than listed": {reason: "the main one decides", reported: []string{"10.1.0.7", "10.1.0.8"}, want: []string{"10.1.0.7"}},
		"another spelling":         {reason: "shown in the one usual", reported: []string{"FD01:0::7", "fd01::7"}, want: []string{"fd01::7"}},
		"none":                     {reason: "a pod that waits", reported: []string{""}},
		"without end":              {reason: "there is a bound", reported: append(strings.Fields(strings.Repeat("10.96.0.1 ", 3)), many(100)...)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := hubNetwork().Choose(tc.reported, Limit{})
			if diff := cmp.Diff(tc.want, got.Shown); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(got.Dropped) > reportedMax {
				t.Errorf("%d are said to be dropped", len(got.Dropped))
			}
		})
	}
}

// many are different addresses of Services.
func many(n int) []string {
	out := make([]string, 0, n)
	addr := netip.MustParseAddr("10.96.1.0")
	for range n {
		out, addr = append(out, addr.String()), addr.Next()
	}
	return out
}

func TestNetworkFollowsItsSources(t *testing.T) {
	changes := 0
	n := NewNetwork(netip.Addr{}, func() { changes++ })
	shown := func(text string) bool { return len(n.Choose([]string{text}, Limit{}).Shown) > 0 }
	n.Replace(Services, nil)
	n.Replace(APIServers, nil)
	if n.Known() {
		t.Error("known before the nodes are")
	}
	n.Replace(Nodes, nil)
	if !n.Known() || changes != 3 {
		t.Errorf("known %t after %d changes, want three", n.Known(), changes)
	}
	claim := ParseUsage([]string{"10.244.1.0/24"}, []string{"192.0.2.2"})
	n.Put(Nodes, "b", claim)
	n.Put(Nodes, "b", claim)
	if shown("10.244.1.1") || shown("192.0.2.2") || changes != 4 {
		t.Errorf("a new node is unknown, or was news %d times", changes-3)
	}
	n.Put(Nodes, "c", ParseUsage([]string{"10.244.1.0/24"}, nil))
	n.Delete(Nodes, "b")
	if shown("10.244.1.1") || !shown("192.0.2.2") {
		t.Error("what two claim is free when one is gone, or what one claimed is not")
	}
	n.Replace(Nodes, map[string]Usage{"d": ParseUsage([]string{"10.244.2.0/24"}, nil)})
	if !shown("10.244.1.1") || shown("10.244.2.1") {
		t.Error("a list does not replace what there was")
	}
	if n.Delete(Nodes, "none"); changes != 7 {
		t.Errorf("%d changes, want 7", changes)
	}
}

func TestHubWithoutPodCIDRsShowsAllowedRangesOnly(t *testing.T) {
	n := hubNetwork()
	n.Replace(Nodes, map[string]Usage{"a": ParseUsage(nil, []string{"192.0.2.1"})})
	if got := n.Choose([]string{"10.1.0.7"}, Limit{}); len(got.Shown) > 0 {
		t.Error("an address that may be a pod's of the hub is shown")
	}
	if got := n.Choose([]string{"10.1.0.7"}, limitOf(t, "10.1.0.0/16")); len(got.Shown) != 1 {
		t.Errorf("one that the record names is not shown: %v", got.Dropped)
	}
	n.Put(Nodes, "b", ParseUsage([]string{"10.244.0.0/24"}, nil))
	if got := n.Choose([]string{"10.1.0.7"}, Limit{}); len(got.Shown) != 1 {
		t.Errorf("not shown, though the hub says where its pods are: %v", got.Dropped)
	}
}

func TestUnknownNetworkKeepsShownAddresses(t *testing.T) {
	got := ChooseShown([]string{"10.1.0.7", "fd01::7"}, []string{"10.1.0.7"})
	if diff := cmp.Diff([]string{"10.1.0.7"}, got.Shown); diff != "" || len(got.Dropped) != 1 {
		t.Errorf("dropped %v, shown (-want +got):\n%s", got.Dropped, diff)
	}
	if got := ChooseShown([]string{"127.0.0.1"}, []string{"127.0.0.1"}); len(got.Shown) > 0 {
		t.Error("a loopback address stays")
	}
}

func TestParseLimit(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		ok           bool
	}{
		"none":             {reason: "no address is wanted", text: " none ", ok: true},
		"ranges":           {reason: "of both families", text: "10.1.0.0/16, fd00::/8", ok: true},
		"all":              {reason: "whatever is not the hub's", text: "0.0.0.0/0,::/0", ok: true},
		"empty":            {reason: "whoever wrote it meant something", text: ""},
		"an address":       {reason: "it is no CIDR", text: "10.1.0.7"},
		"bits beyond":      {reason: "it may be a slip", text: "10.1.0.7/16"},
		"a mapped range":   {reason: "it matches nothing", text: "::ffff:10.1.0.0/112"},
		"an end too many":  {reason: "it may be cut off", text: "10.1.0.0/16,"},
		"none and a range": {reason: "it contradicts itself", text: "none,10.1.0.0/16"},
		"too many":         {reason: "there is a bound", text: strings.Repeat("10.1.0.0/16,", limitMax) + "10.1.0.0/16"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			limit, err := ParseLimit(tc.text)
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, errLimit) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
			if err != nil && (limit.allows(netip.MustParseAddr("10.1.0.7")) || !limit.Equal(limitOf(t, None))) {
				t.Errorf("%s: with an error some address is allowed", tc.reason)
			}
		})
	}
}

func FuzzChoose(f *testing.F) {
	for _, seed := range []string{"10.1.0.7 fd01::7", "::ffff:10.96.0.1", "fe80::1%1 ::1", "10.96.0.1 10.1.0.7", "0x7f.1", "64:ff9b::1"} {
		f.Add(seed, "10.1.0.0/16")
	}
	network := hubNetwork()
	f.Fuzz(func(t *testing.T, reported, text string) {
		limit, _ := ParseLimit(text)
		got := network.Choose(strings.Fields(reported), limit)
		if len(got.Shown) > 2 || len(got.Dropped) > reportedMax {
			t.Fatalf("too many: %+v", got)
		}
		for _, shown := range got.Shown {
			addr, err := netip.ParseAddr(shown)
			if err != nil || addr.String() != shown || addr.Is4In6() || addr.Zone() != "" {
				t.Fatalf("%q is shown in an unusual form", shown)
			}
			if !addr.IsGlobalUnicast() || network.dropReason(addr, limit) != "" {
				t.Fatalf("%s is shown", shown)
			}
		}
		if len(got.Shown) == 2 && netip.MustParseAddr(got.Shown[0]).Is4() == netip.MustParseAddr(got.Shown[1]).Is4() {
			t.Fatalf("two of one family: %v", got.Shown)
		}
	})
}
