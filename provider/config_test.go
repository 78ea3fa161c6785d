// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
)

func TestConfigValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		ok     bool
	}{
		"complete":        {reason: "the rest has defaults", change: func(*Config) {}, ok: true},
		"no client":       {reason: "nothing works without", change: func(c *Config) { c.Client = nil }},
		"no address":      {reason: "a Node without one is not dialled", change: func(c *Config) { c.Address = netip.Addr{} }},
		"loopback":        {reason: "the API server refuses to dial it", change: func(c *Config) { c.Address = netip.MustParseAddr("127.0.0.1") }},
		"link-local":      {reason: "the API server refuses to dial it", change: func(c *Config) { c.Address = netip.MustParseAddr("169.254.169.254") }},
		"low ports":       {reason: "the hub has no privilege", change: func(c *Config) { c.PortMin, c.PortMax = 80, 90 }},
		"no ports":        {reason: "an empty range holds no node", change: func(c *Config) { c.PortMin, c.PortMax = 30000, 20000 }},
		"negative grace":  {reason: "time does not run back", change: func(c *Config) { c.ReconnectGrace = -time.Second }},
		"no registerer":   {reason: "metrics are not global", change: func(c *Config) { c.Registerer = nil }},
		"no endpoints":    {reason: "a Node without a kubelet is a lie", change: func(c *Config) { c.Endpoints = nil }},
		"no pods":         {reason: "what is bound to a Node is kept", change: func(c *Config) { c.Pods = nil }},
		"no links at all": {reason: "nothing would ever be Ready", change: func(c *Config) { c.Links = nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := Config{
				Client: fake.NewSimpleClientset(), Links: &fakeLinks{}, Endpoints: &fakeEndpoints{}, Pods: newFakePods(),
				Address: netip.MustParseAddr("192.0.2.1"), Registerer: prometheus.NewRegistry(),
			}
			tc.change(&c)
			if _, err := New(c); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
