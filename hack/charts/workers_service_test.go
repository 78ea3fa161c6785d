// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTheAPIForWranglerSeesTheAddressesOfItsClients, which are counted by them when their token is new.
func TestTheAPIForWranglerSeesTheAddressesOfItsClients(t *testing.T) {
	for name, tc := range map[string]struct {
		values []string
		want   corev1.ServiceExternalTrafficPolicy
	}{
		"within a cluster": {nil, ""},
		"on a node's port": {[]string{"api.service.type=NodePort"}, corev1.ServiceExternalTrafficPolicyLocal},
		"load balancer":    {[]string{"api.service.type=LoadBalancer"}, corev1.ServiceExternalTrafficPolicyLocal},
		"if they say so":   {[]string{"api.service.type=LoadBalancer", "api.service.externalTrafficPolicy=Cluster"}, corev1.ServiceExternalTrafficPolicyCluster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values := withAPI(tc.values...)
			if got := trafficPolicy(t, workersChart, workersAPI, values...); got != tc.want {
				t.Errorf("externalTrafficPolicy = %q, want %q", got, tc.want)
			}
		})
	}
}
