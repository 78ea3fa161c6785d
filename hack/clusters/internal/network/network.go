// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/internal/process"
)

// Create builds the namespaces, links and filter of a set. The machine's
// forwarding must be on.
func Create(ctx context.Context, hub Plan, spokes []Plan) error {
	for _, plan := range append([]Plan{hub}, spokes...) {
		if err := link(ctx, plan); err != nil {
			return fmt.Errorf("network of %s: %w", plan.Namespace, err)
		}
	}
	if err := restore(ctx, filter(hub, spokes)); err != nil {
		return fmt.Errorf("packet filter: %w", err)
	}
	// First, because other software (Docker, for one) may drop what it does not know.
	for _, jump := range jumps(hub.Slot) {
		if err := run(ctx, "", "iptables", append([]string{"-w", "-t", jump.table, "-I"}, jump.rule...)...); err != nil {
			return fmt.Errorf("packet filter: %w", err)
		}
	}
	return nil
}

// link makes a namespace and joins it to the root namespace.
func link(ctx context.Context, plan Plan) error {
	gateway, host := plan.Gateway().String(), plan.Host().String()
	for _, args := range [][]string{
		{"netns", "add", plan.Namespace},
		{"link", "add", plan.Link(), "type", "veth", "peer", "name", "eth0", "netns", plan.Namespace},
		{"address", "add", gateway + "/30", "dev", plan.Link()},
		{"link", "set", plan.Link(), "up"},
		{"-n", plan.Namespace, "address", "add", host + "/30", "dev", "eth0"},
		{"-n", plan.Namespace, "link", "set", "lo", "up"},
		{"-n", plan.Namespace, "link", "set", "eth0", "up"},
		{"-n", plan.Namespace, "route", "add", "default", "via", gateway},
	} {
		if err := run(ctx, "", "ip", args...); err != nil {
			return err
		}
	}
	return process.Within(plan.Path(), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	})
}

// Remove removes whatever exists of the set's network.
func Remove(ctx context.Context, plans []Plan) error {
	var failed error
	for _, plan := range plans {
		if _, err := net.InterfaceByName(plan.Link()); err == nil {
			failed = errors.Join(failed, run(ctx, "", "ip", "link", "delete", plan.Link()))
		}
		if _, err := os.Stat(plan.Path()); err == nil {
			failed = errors.Join(failed, run(ctx, "", "ip", "netns", "delete", plan.Namespace))
		}
	}
	if len(plans) == 0 {
		return failed
	}
	return errors.Join(failed, removeChains(ctx, plans[0].Slot))
}

type jump struct {
	table string
	rule  []string
}

func jumps(slot int) []jump {
	return []jump{
		{"filter", []string{"FORWARD", "-j", chain(slot)}},
		{"nat", []string{"POSTROUTING", "-j", chain(slot)}},
	}
}

// removeChains removes the set's chains and every jump to them.
func removeChains(ctx context.Context, slot int) error {
	for _, jump := range jumps(slot) {
		for run(ctx, "", "iptables", append([]string{"-w", "-t", jump.table, "-D"}, jump.rule...)...) == nil {
			continue // a half-made set that was made again may have two
		}
		names, err := chains(ctx, jump.table, slot)
		if err != nil {
			return err
		}
		var text strings.Builder
		fmt.Fprintf(&text, "*%s\n", jump.table)
		for _, name := range names { // flushed first: they refer to each other
			fmt.Fprintf(&text, ":%s - [0:0]\n", name)
		}
		for _, name := range names {
			fmt.Fprintf(&text, "-X %s\n", name)
		}
		text.WriteString("COMMIT\n")
		if err := restore(ctx, text.String()); err != nil {
			return fmt.Errorf("packet filter: %w", err)
		}
	}
	return nil
}

// chains lists the chains of the table that belong to the slot.
func chains(ctx context.Context, table string, slot int) ([]string, error) {
	out, err := exec.CommandContext(ctx, "iptables", "-w", "-t", table, "-S").Output() //nolint:gosec // ours
	if err != nil {
		return nil, fmt.Errorf("iptables -t %s -S: %w", table, err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		name, isChain := strings.CutPrefix(strings.TrimSpace(line), "-N ")
		if isChain && (name == chain(slot) || strings.HasPrefix(name, chain(slot)+"-")) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Apply puts the mode into force between the spoke and the hub, replacing the
// one before.
func Apply(ctx context.Context, hub, spoke Plan, mode Mode) error {
	text, err := Faults(spoke.faultChain(), mode,
		"-i "+spoke.Link()+" -o "+hub.Link(), "-i "+hub.Link()+" -o "+spoke.Link())
	if err != nil {
		return err
	}
	return restore(ctx, text)
}

func restore(ctx context.Context, text string) error {
	return run(ctx, text, "iptables-restore", "-w", "--noflush")
}

func run(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // fixed programs
	cmd.Stdin = strings.NewReader(input)
	return process.Run(cmd)
}

// Taken lists the networks that the machine has routes to.
func Taken() ([]netip.Prefix, error) {
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	return parseRoutes(string(routes))
}

var errRoute = errors.New("unexpected line in /proc/net/route")

// parseRoutes reads /proc/net/route: addresses and masks are in hexadecimal, in
// the machine's byte order.
func parseRoutes(routes string) ([]netip.Prefix, error) {
	scanner := bufio.NewScanner(strings.NewReader(routes))
	scanner.Scan() // the headings
	var prefixes []netip.Prefix
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 8 {
			return nil, errRoute
		}
		destination, err := hex.DecodeString(fields[1])
		if err != nil || len(destination) != 4 {
			return nil, errRoute
		}
		mask, err := hex.DecodeString(fields[7])
		if err != nil || len(mask) != 4 {
			return nil, errRoute
		}
		var address [4]byte
		binary.NativeEndian.PutUint32(address[:], binary.BigEndian.Uint32(destination))
		ones := bits.OnesCount32(binary.BigEndian.Uint32(mask))
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4(address), ones))
	}
	return prefixes, scanner.Err()
}
