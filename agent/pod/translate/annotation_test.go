// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// powers are annotations of the field by which a pod reaches what its fields do not
// say: nodes, networks, identities, other pods. The list is not what defends: none of
// them is named in the code.
var powers = []string{
	"azure.workload.identity/inject-proxy-sidecar",
	"cluster-autoscaler.kubernetes.io/safe-to-evict",
	"cni.projectcalico.org/ipAddrsNoIpam",
	"config.linkerd.io/proxy-image",
	"cpu-load-balancing.crio.io",
	"dev.gvisor.spec.mount.data.source",
	"iam.amazonaws.com/role",
	"iam.gke.io/credential-key",
	"inject.istio.io/templates",
	"io.katacontainers.config.hypervisor.path",
	"io.kubernetes.cri-o.Devices",
	"io.kubernetes.cri-o.userns-mode",
	"k8s.ovn.org/pod-networks",
	"k8s.v1.cni.cncf.io/networks",
	"karpenter.sh/do-not-disrupt",
	"kubernetes.io/egress-bandwidth",
	"ovn.kubernetes.io/logical_switch",
	"scheduler.alpha.kubernetes.io/tolerations",
	"sidecar.istio.io/bootstrapOverride",
	"sidecar.istio.io/proxyImage",
	"sidecar.istio.io/userVolume",
	"traffic.sidecar.istio.io/excludeOutboundIPRanges",
	"v1.multus-cni.io/default-network",
	"vault.hashicorp.com/agent-inject",
}

func TestUnlistedAnnotationIsLeftOut(t *testing.T) {
	plain := []string{
		"app.kubernetes.io/version", "batch.kubernetes.io/job-completion-index", "checksum/config",
		"kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/restartedAt", "note", "prometheus.io/scrape", "rollme",
	}
	cases := map[string]struct {
		reason string
		owner  []string
		host   bool
		bears  []string
		want   []string
	}{
		"what is known to give power": {reason: "and whatever comes after it", bears: powers},
		"what looks like it":          {reason: "a domain is compared whole", bears: []string{"prometheus.io.evil.example/x", "xprometheus.io/x", "checksum.example/x", "kubectl.kubernetes.io"}},
		"what is the pod's own":       {reason: "kubectl, Jobs, charts and scrapers would not work without", bears: plain, want: plain},
		"a domain of the owner's": {
			reason: "who runs the components knows what they do", owner: []string{"vault.hashicorp.com/", "example.com/team"},
			bears: []string{"vault.hashicorp.com/agent-inject", "vault.hashicorp.com/role", "example.com/team", "example.com/team-lead", "example.com/other"},
			want:  []string{"example.com/team", "vault.hashicorp.com/agent-inject", "vault.hashicorp.com/role"},
		},
		"a key with dots": {reason: "runtimes have such", owner: []string{"io.kubernetes.cri-o.userns-mode"}, bears: powers, want: []string{"io.kubernetes.cri-o.userns-mode"}},
		"host access":     {reason: "whoever gives that gives these", host: true, bears: powers, want: powers},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := hubPod(t, `{"containers":[{"name":"main","image":"web:1"}]}`)
			hub.Annotations = map[string]string{}
			for _, key := range tc.bears {
				hub.Annotations[key] = "x"
			}
			o := options()
			o.Annotations, o.HostAccess = tc.owner, tc.host
			got := mustPod(t, hub, o).Annotations
			delete(got, AnnotationWritten)
			if diff := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("%s: annotations in the spoke (-want +got):\n%s", tc.reason, diff)
			}
			for key := range got {
				delete(hub.Annotations, key)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(hub.Annotations)), LeftOutAnnotations(hub, o)); diff != "" {
				t.Errorf("what is said to be left out (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHubOnlyAnnotationsAreNotReported(t *testing.T) {
	hub := hubPod(t, `{"containers":[{"name":"main","image":"web:1"}]}`)
	hub.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
	hub.Annotations["controller.kubernetes.io/pod-deletion-cost"] = "1"
	if left := LeftOutAnnotations(hub, options()); len(left) > 0 {
		t.Errorf("left out: %v", left)
	}
}
