// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/internal/managedcluster"
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

// The namespaces are there, so that nothing but the name tells that the hub never makes
// them a cluster's.
func TestNoTokenIsMadeForWhatTheHubRefuses(t *testing.T) {
	const reserved = "name is that of a namespace with a purpose of its own"
	for name, tc := range map[string]struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		"default":        {reason: "everybody works there", args: []string{"default"}, code: exitUsage, says: `cluster name "default": ` + reserved},
		"the system's":   {reason: "Kubernetes keeps the prefix", args: []string{"kube-public"}, code: exitUsage, says: reserved},
		"the hub's":      {reason: "its Secrets are there", args: []string{"spokelet-system"}, code: exitUsage, says: reserved},
		"another hub's":  {reason: "that is where it runs", args: []string{"hub", "--hub-namespace", "hub"}, code: exitUsage, says: reserved},
		"one of many":    {reason: "all are looked at first", args: []string{"store1", "default"}, code: exitUsage, says: reserved},
		"no cluster id":  {reason: "no certificate can have it", args: []string{"restored"}, code: exitFailed, says: `id "none"`},
		"a store's name": {reason: "nothing else has it", args: []string{"store1"}, code: exitDone},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCLI(t, page(), namespace("default"), namespace("kube-public"), namespace("spokelet-system"), namespace("hub"), namespace("store1"),
				namespace("restored"), cluster("restored", func(c *clusterv1.ManagedCluster) { c.Annotations[managedcluster.AnnotationClusterID] = "none" }))
			if code := c.run(append([]string{"join"}, tc.args...)...); code != tc.code || !strings.Contains(c.err.String(), tc.says) {
				t.Errorf("%s: exit code %d, want %d: %s", tc.reason, code, tc.code, c.err.String())
			}
			secrets := &corev1.SecretList{}
			if err := c.hub.List(t.Context(), secrets); err != nil {
				t.Fatal(err)
			}
			if made := len(secrets.Items) > 0 || c.out.Len() > 0; made != (tc.code == exitDone) {
				t.Errorf("%s: %d tokens, printed %q", tc.reason, len(secrets.Items), c.out.String())
			}
		})
	}
}
