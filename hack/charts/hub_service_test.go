// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The hub counts strangers by their address, which a Service hides unless it is
// told not to.
func TestTheHubSeesTheAddressesOfItsClients(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		values []string
		want   corev1.ServiceExternalTrafficPolicy
	}{
		"by default":       {"a load balancer keeps addresses if asked to", nil, corev1.ServiceExternalTrafficPolicyLocal},
		"on a node's port": {"kube-proxy replaces addresses as well", []string{"publicService.type=NodePort"}, corev1.ServiceExternalTrafficPolicyLocal},
		"within a cluster": {"the API server refuses the field there", []string{"publicService.type=ClusterIP"}, ""},
		"if they say so":   {"nodes without the pod have to answer", []string{"publicService.externalTrafficPolicy=Cluster"}, corev1.ServiceExternalTrafficPolicyCluster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := trafficPolicy(t, "spokelet-hub", "spokelet-hub-public", tc.values...); got != tc.want {
				t.Errorf("externalTrafficPolicy = %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// trafficPolicy returns that of a Service.
func trafficPolicy(t *testing.T, chart, name string, values ...string) corev1.ServiceExternalTrafficPolicy {
	t.Helper()
	for _, object := range render(t, chart, values...) {
		if object.GetKind() == "Service" && object.GetName() == name {
			var service corev1.Service
			convert(t, object, &service)
			return service.Spec.ExternalTrafficPolicy
		}
	}
	t.Fatalf("chart %s has no Service %s", chart, name)
	return ""
}
