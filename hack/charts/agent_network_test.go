// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
)

func TestTheAgentsNetworkIsAsNarrowAsItsOwnerSays(t *testing.T) {
	cases := map[string]struct {
		reason string
		values []string
		// froms are how many sources are named, -1 where any may connect.
		froms int
		types []networkingv1.PolicyType
	}{
		"by default": {reason: "nobody knows here who scrapes, nor where the hub is", froms: -1, types: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
		"sources": {
			reason: "the scraper, and the chart's own test",
			values: []string{"networkPolicy.from[0].namespaceSelector.matchLabels.name=monitoring"}, froms: 2,
			types: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
		"charts": {
			reason: "their servers are reached, as the hub is", values: []string{"helm.charts={https://charts.example.com}"}, froms: -1,
			types: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
		"targets": {
			reason: "the owner knows where the hub is",
			values: []string{"networkPolicy.egress[0].ports[0].port=8443"}, froms: -1,
			types: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := networkPolicy(t, "spokelet-agent", tc.values...)
			if diff := cmp.Diff(tc.types, spec.PolicyTypes); diff != "" {
				t.Errorf("%s: types (-want +got):\n%s", tc.reason, diff)
			}
			if len(spec.Ingress) != 1 || len(spec.Ingress[0].Ports) != 1 {
				t.Fatalf("what may be connected to: %+v", spec.Ingress)
			}
			if froms := spec.Ingress[0].From; froms == nil && tc.froms >= 0 || froms != nil && len(froms) != tc.froms {
				t.Errorf("%s: sources %+v", tc.reason, froms)
			}
			if limited := len(tc.types) > 1; limited != (len(spec.Egress) == 1) {
				t.Errorf("%s: targets %+v", tc.reason, spec.Egress)
			}
		})
	}
}
