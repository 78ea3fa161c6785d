// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spokelet/spokelet/e2e/bench/figure"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestEveryBudgetOfTheTunnelIsMeasured(t *testing.T) {
	got, err := Measure(t.Context(), Plan{Rounds: 1, Gets: 20, Busy: 10 * time.Millisecond, Bulk: 1 << 20, StalledRounds: 1, StalledGets: 20, SlowRounds: 1, SlowGets: 3})
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]figure.Figure{}
	for _, f := range got {
		if f.Value <= 0 || f.Unit == "" || f.Detail == "" {
			t.Errorf("figure is not measured: %+v", f)
		}
		measured[f.Name] = f
	}
	for _, name := range []string{
		"tunnel.get.p50.ratio", "tunnel.get.rps64.ratio", "tunnel.bulk.ratio",
		"tunnel.slowlink.get.rtt", "tunnel.stalled.p99.ratio",
	} {
		if _, ok := figure.Budgets()[name]; !ok {
			t.Errorf("%s has no budget", name)
		}
		if _, ok := measured[name]; !ok {
			t.Errorf("%s is not measured", name)
		}
	}
}

func TestALineDelaysAndPaces(t *testing.T) {
	const latency, rate, size = 20 * time.Millisecond, 10e6, 1 << 20
	line := NewLine(latency, rate)
	near, far := overLine(t, line)
	start := time.Now()
	go func() { _, _ = near.Write(make([]byte, size)) }()
	first := make([]byte, 1)
	if _, err := far.Read(first); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < latency {
		t.Errorf("the first byte took %v, want at least %v", took, latency)
	}
	for left := size - 1; left > 0; {
		n, err := far.Read(make([]byte, 64<<10))
		if err != nil {
			t.Fatal(err)
		}
		left -= n
	}
	if took, least := time.Since(start), time.Duration(size/rate*float64(time.Second)); took < least {
		t.Errorf("%d bytes took %v, want at least %v", size, took, least)
	}
}

// overLine returns the two ends of a connection over a line.
func overLine(t *testing.T, line *Line) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	near, err = line.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
		_ = listener.Close()
	})
	return near, far
}
