// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spokelet/spokelet/internal/testing/tunneltest"
	"github.com/spokelet/spokelet/tunnel"
)

// gather reads metrics as "name{labels}" to value; histograms by their count.
func gather(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := fmt.Sprintf("%s{%s}", strings.TrimPrefix(family.GetName(), "spokelet_tunnel_"), strings.Join(labels, ","))
			switch {
			case m.GetCounter() != nil:
				values[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				values[key] = m.GetGauge().GetValue()
			default:
				values[key] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// pick leaves the values of some keys.
func pick(values map[string]float64, keys map[string]float64) map[string]float64 {
	picked := map[string]float64{}
	for key := range keys {
		if v, ok := values[key]; ok {
			picked[key] = v
		}
	}
	return picked
}

func TestMetricsFollowSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atHub, atAgent := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
		hub := tunneltest.NewHub(t, func(c *tunnel.ServerConfig) { c.Registerer = atHub })
		network := tunneltest.NewNetwork(tunneltest.NetworkConfig{Latency: 10 * time.Millisecond})
		agent := hub.Run(t, hub.Authority.NewCluster("spoke1"), network, func(c *tunnel.AgentConfig) {
			c.Registerer = atAgent
			c.Doors = holding(newHold())
		})
		open(t, hub.Session(t, "spoke1"))
		time.Sleep(time.Minute)
		want := map[string]float64{
			"sessions{cluster=spoke1}":             1,
			"streams{cluster=spoke1,door=control}": 1,
			"streams{cluster=spoke1,door=kube}":    1,
			"rtt_seconds{cluster=spoke1}":          0.02,
			"dials_total{result=ok}":               1,
			"dial_duration_seconds{}":              1,
		}
		if diff := cmp.Diff(want, pick(gather(t, atHub), want)); diff != "" {
			t.Errorf("hub (-want +got):\n%s", diff)
		}
		network.Cut()
		time.Sleep(time.Second)
		want = map[string]float64{
			"sessions{cluster=spoke1}":                      1,
			"streams{cluster=spoke1,door=control}":          1,
			"dials_total{result=ok}":                        2,
			"disconnects_total{cluster=spoke1,reason=lost}": 1,
		}
		if diff := cmp.Diff(want, pick(gather(t, atHub), want)); diff != "" {
			t.Errorf("hub after a cut (-want +got):\n%s", diff)
		}
		want = map[string]float64{
			"sessions{}":                     1,
			"dials_total{result=ok}":         2,
			"disconnects_total{reason=lost}": 1,
		}
		if diff := cmp.Diff(want, pick(gather(t, atAgent), want)); diff != "" {
			t.Errorf("agent after a cut (-want +got):\n%s", diff)
		}
		agent.Stop()
		synctest.Wait() // for the hub
		values := gather(t, atHub)
		if got := values["sessions{cluster=spoke1}"]; got != 0 {
			t.Errorf("%v sessions after the agent left, want 0", got)
		}
		if values["bytes_total{cluster=spoke1,direction=in}"] == 0 || values["bytes_total{cluster=spoke1,direction=out}"] == 0 {
			t.Error("bytes of ended sessions are not counted")
		}
		if _, ok := values["rtt_seconds{cluster=spoke1}"]; ok {
			t.Error("a round trip is reported without a session")
		}
	})
}

func TestConfigsAreValidated(t *testing.T) {
	for name, limits := range map[string]tunnel.Limits{
		"no streams":                    {Streams: -1},
		"all streams reserved":          {Streams: 10, ReservedStreams: 10},
		"a window of less than a frame": {MinStreamWindow: 1},
		"a window beyond the budget":    {StreamWindow: 1 << 20, WindowBudget: 1 << 19},
		"no time for a ping":            {PingTimeout: -1},
		"no place for a handshake":      {Handshakes: -1},
		"no connection of a cluster":    {ClusterConnections: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := limits.Default().Validate(); err == nil {
				t.Error("Validate() has no error")
			}
		})
	}
	if err := (tunnel.Limits{}).Default().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	if _, err := tunnel.NewServer(tunnel.ServerConfig{}); err == nil {
		t.Error("NewServer() of nothing has no error")
	}
	if _, err := tunnel.NewAgent(tunnel.AgentConfig{}); err == nil {
		t.Error("NewAgent() of nothing has no error")
	}
}
