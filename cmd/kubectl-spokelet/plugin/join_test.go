// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAKnownClusterIsAcceptedOnceTheTokenBeforeIsWorthless(t *testing.T) {
	denied := cluster("store1", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	c := newCLI(t, page(), namespace("store1"), denied)
	written := 0
	c.tokenWritten = func() {
		written++
		record := &clusterv1.ManagedCluster{}
		if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1"}, record); err != nil || record.Spec.HubAcceptsClient {
			t.Errorf("accepted before the new token was written: %v", err)
		}
	}
	if code := c.run("join", "store1", "--accept"); code != exitDone || written != 1 {
		t.Errorf("exit code %d, %d tokens were written: %s", code, written, c.err.String())
	}
}
