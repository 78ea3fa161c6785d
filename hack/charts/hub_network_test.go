// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networkPolicy is the network policy of a chart.
func networkPolicy(t *testing.T, chart string, values ...string) networkingv1.NetworkPolicySpec {
	t.Helper()
	var policy networkingv1.NetworkPolicy
	if !find(t, chart, "NetworkPolicy", &policy, values...) {
		t.Fatal("the chart has no network policy")
	}
	return policy.Spec
}

func TestWhoReachesWhichPortOfTheHub(t *testing.T) {
	own := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	at := func(cidr string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}
	}
	const set = "networkPolicy.from."
	server, reader := set+"apiServer[0].ipBlock.cidr=192.0.2.1/32", set+"kubelet[0].ipBlock.cidr=192.0.2.2/32"
	cases := map[string]struct {
		reason string
		values []string
		want   map[int32][]networkingv1.NetworkPolicyPeer
	}{
		"by default": {
			reason: "nothing authenticates who reads figures of the hub",
			want:   map[int32][]networkingv1.NetworkPolicyPeer{8443: nil, 6443: nil, 9443: nil, 20000: nil, 8080: {own}},
		},
		"each of them": {
			reason: "each port has sources of its own",
			values: []string{set + "public[0].ipBlock.cidr=192.0.2.0/28", server, reader, set + "metrics[0].ipBlock.cidr=192.0.2.3/32"},
			want: map[int32][]networkingv1.NetworkPolicyPeer{
				8443: {at("192.0.2.0/28")}, 6443: {at("192.0.2.1/32")}, 9443: {at("192.0.2.1/32")},
				20000: {at("192.0.2.1/32"), at("192.0.2.2/32")}, 8080: {own, at("192.0.2.3/32")},
			},
		},
		"the API server alone": {
			reason: "a metrics server would be cut off unasked",
			values: []string{server},
			want:   map[int32][]networkingv1.NetworkPolicyPeer{8443: nil, 6443: {at("192.0.2.1/32")}, 9443: {at("192.0.2.1/32")}, 20000: nil, 8080: {own}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[int32][]networkingv1.NetworkPolicyPeer{}
			for _, rule := range networkPolicy(t, "spokelet-hub", tc.values...).Ingress {
				for _, port := range rule.Ports {
					got[port.Port.IntVal] = rule.From
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTheHubReachesWhatItIsLet(t *testing.T) {
	if spec := networkPolicy(t, "spokelet-hub"); len(spec.Egress) != 0 || len(spec.PolicyTypes) != 1 {
		t.Errorf("egress is restricted unasked: %+v", spec)
	}
	spec := networkPolicy(t, "spokelet-hub", "networkPolicy.egress[0].to[0].ipBlock.cidr=192.0.2.1/32")
	if len(spec.Egress) != 1 || spec.Egress[0].To[0].IPBlock.CIDR != "192.0.2.1/32" || len(spec.PolicyTypes) != 2 {
		t.Errorf("egress is not restricted as asked: %+v", spec)
	}
}
