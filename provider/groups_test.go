// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
)

const poolLabel = "example.com/pool"

// pooled is a cluster in those groups, whose own node has nothing but the rest.
func pooled(groups ...string) wire.NodeSummary {
	s := healthy()
	s.Split = &wire.NodeSplit{Label: poolLabel, Groups: groups}
	return s
}

// of is a group with so many CPUs.
func of(cpu string) wire.NodeSummary {
	s := healthy()
	s.Capacity = wire.Quantities{"cpu": cpu, "pods": "110"}
	s.Allocatable = s.Capacity
	s.Zones = []string{"z-" + cpu}
	return s
}

func (h *hub) group(name, group string, s wire.NodeSummary) {
	h.provider.SetGroupSummary(name, group, s)
	synctest.Wait()
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// split shows spoke1 with two groups.
func (h *hub) split() {
	h.t.Helper()
	h.ensure(spoke1)
	h.connect("spoke1")
	h.group("spoke1", "gpu", of("4"))
	h.group("spoke1", "std", of("2"))
	h.summary("spoke1", pooled("gpu", "std"))
	pass(time.Second)
	for _, name := range []string{"spoke1", "spoke1.gpu", "spoke1.std"} {
		h.wantReady(name, "True NodesReady", "of a cluster in two groups")
	}
}

func TestEachGroupHasNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		node := h.node("spoke1.gpu")
		wantLabels := map[string]string{
			"region":                      "eu",
			"type":                        "virtual-kubelet",
			"spokelet.io/cluster":         "spoke1",
			"example.com/pool":            "gpu",
			"kubernetes.io/hostname":      "spoke1.gpu",
			"topology.kubernetes.io/zone": "z-4",
			"node.kubernetes.io/exclude-from-external-load-balancers": "true",
			"node.kubernetes.io/exclude-disruption":                   "true",
		}
		if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		wantSpec := corev1.NodeSpec{
			ProviderID: "spokelet://id-1/gpu",
			Taints:     []corev1.Taint{{Key: "spokelet.io/virtual-node", Effect: corev1.TaintEffectNoSchedule}},
		}
		if diff := cmp.Diff(wantSpec, node.Spec); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if got := node.Status.Capacity.Cpu().String(); got != "4" {
			t.Errorf("capacity: got %s CPUs, want the 4 of the group", got)
		}
		ports := map[int32]bool{}
		for name, port := range h.endpoints.open {
			ports[port] = true
			if !h.pods.watched[name] {
				t.Errorf("the pods of %s are not watched", name)
			}
		}
		if len(ports) != 3 {
			t.Errorf("endpoints: got %v, want three ports", h.endpoints.open)
		}
		if got := h.node("spoke1").Labels[poolLabel]; got != "" {
			t.Errorf("the cluster's own node is of the group %q", got)
		}

		pass(time.Minute)
		h.disconnect("spoke1", "lost")
		for _, name := range []string{"spoke1", "spoke1.gpu", "spoke1.std"} {
			h.wantReady(name, "False TunnelDisconnected", "when the session ends")
		}
		pass(time.Minute)
		h.connect("spoke1")
		h.wantReady("spoke1.gpu", "True NodesReady", "when it is back")
	})
}

func TestGroupNodeNeedsBothSummaries(t *testing.T) {
	cases := map[string]struct {
		reason string
		say    func(*hub)
		want   bool
	}{
		"the group first": {
			reason: "they travel apart",
			say:    func(h *hub) { h.group("spoke1", "gpu", of("4")); h.summary("spoke1", pooled("gpu")) }, want: true,
		},
		"the cluster first": {
			reason: "they travel apart",
			say:    func(h *hub) { h.summary("spoke1", pooled("gpu")); h.group("spoke1", "gpu", of("4")) }, want: true,
		},
		"before the cluster is accepted": {
			reason: "an agent may be quicker than its record",
			say:    func(h *hub) { h.group("spoke1", "gpu", of("4")); h.summary("spoke1", pooled("gpu")) }, want: true,
		},
		"the group alone": {
			reason: "what the cluster does not name is not there",
			say:    func(h *hub) { h.group("spoke1", "gpu", of("4")); h.summary("spoke1", pooled("std")) },
		},
		"the cluster alone": {
			reason: "a node of which nothing is known takes no pods",
			say:    func(h *hub) { h.summary("spoke1", pooled("gpu")) },
		},
		"a cluster that is one node": {
			reason: "its agent was told not to split it any more",
			say:    func(h *hub) { h.group("spoke1", "gpu", of("4")); h.summary("spoke1", healthy()) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewSimpleClientset())
				defer h.stop()
				if !strings.HasPrefix(name, "before") {
					h.ensure(spoke1)
				}
				h.connect("spoke1")
				tc.say(h)
				h.ensure(spoke1)
				pass(time.Second)
				if got := h.node("spoke1.gpu") != nil; got != tc.want {
					t.Errorf("%s: node is there: %t, want %t", tc.reason, got, tc.want)
				}
				h.wantReady("spoke1", "True NodesReady", "the cluster's own node is there in any case")
			})
		})
	}
}

func TestGroupNodeStaysWhilePodsAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		h.pods.bind("spoke1.gpu", true)
		h.summary("spoke1", pooled())
		pass(time.Second)
		if h.node("spoke1.std") != nil {
			t.Error("the node of the group without pods is there")
		}
		h.wantReady("spoke1.gpu", "False NoNodes", "while a pod is bound to it")
		if got := h.node("spoke1.gpu").Status.Allocatable; !got.Cpu().IsZero() || !got.Pods().IsZero() {
			t.Errorf("allocatable of a group without nodes: %v", got)
		}
		h.wantReady("spoke1", "True NodesReady", "whatever becomes of groups")

		h.summary("spoke1", pooled("gpu"))
		pass(time.Second)
		h.wantReady("spoke1.gpu", "True NodesReady", "when a node of the group is back")
		if got := h.node("spoke1.gpu").Status.Capacity.Cpu().String(); got != "4" {
			t.Errorf("capacity of the group that is back: %s CPUs", got)
		}
		h.summary("spoke1", pooled())
		pass(time.Second)
		h.pods.bind("spoke1.gpu", false)
		h.provider.NotifyGroupIdle()
		pass(time.Second)
		if h.node("spoke1.gpu") != nil {
			t.Error("the node is there after its last pod")
		}
		if len(h.pods.expected) != 0 || len(h.endpoints.open) != 1 || len(h.provider.nodes) != 1 {
			t.Errorf("left behind: %v, %v, %v", h.pods.expected, h.endpoints.open, h.provider.nodes)
		}
		if h.provider.HasGroupSummary("spoke1", "gpu") {
			t.Error("what the group was is held, and would not be sent again")
		}

		h.summary("spoke1", pooled("gpu"))
		h.group("spoke1", "gpu", of("4"))
		pass(time.Second)
		h.wantReady("spoke1.gpu", "True NodesReady", "when the group comes anew")
	})
}

func TestGroupNodesAfterRestart(t *testing.T) {
	cases := map[string]struct {
		reason string
		during func(h *hub)
		// of spoke1.gpu, at 14 s and at 16 s after the start
		before, after string
	}{
		"nobody comes back": {
			reason: "a group's node is as its cluster's",
			during: func(*hub) {},
			before: "True NodesReady", after: "False TunnelDisconnected",
		},
		"the agent comes back": {
			reason: "a restart of the hub is not seen",
			during: func(h *hub) {
				h.connect("spoke1")
				h.summary("spoke1", pooled("gpu", "std"))
				h.group("spoke1", "gpu", of("4"))
				h.group("spoke1", "std", of("2"))
			},
			before: "True NodesReady", after: "True NodesReady",
		},
		"the agent is quicker than the record": {
			reason: "what it says of a group takes away no node",
			during: func(h *hub) {
				h.connect("spoke1")
				h.group("spoke1", "gpu", of("4"))
				h.summary("spoke1", pooled("gpu", "std"))
			},
			before: "True NodesReady", after: "True NodesReady",
		},
		"the group has gone": {
			reason: "the cluster has said so",
			during: func(h *hub) { h.connect("spoke1"); h.summary("spoke1", pooled("std")) },
			before: "no node", after: "no node",
		},
		"the group has gone, and pods are bound to it": {
			reason: "their end is the agent's to tell",
			during: func(h *hub) {
				h.pods.bind("spoke1.gpu", true)
				h.connect("spoke1")
				h.summary("spoke1", pooled("std"))
			},
			before: "False NoNodes", after: "False NoNodes",
		},
		"the agent knows of no groups any more": {
			reason: "an older one does not, nor one whose option was taken away",
			during: func(h *hub) { h.connect("spoke1"); h.summary("spoke1", healthy()) },
			before: "no node", after: "no node",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				first := startHub(t, client)
				first.split()
				first.stop()
				port := first.node("spoke1.gpu").Status.DaemonEndpoints.KubeletEndpoint.Port

				h := startHub(t, client)
				defer h.stop()
				if strings.Contains(name, "quicker") {
					tc.during(h)
				}
				h.ensure(spoke1)
				if !h.pods.expected["spoke1.gpu"] || !h.pods.expected["spoke1.std"] {
					t.Errorf("expected before anything is said of absence: %v", h.pods.expected)
				}
				tc.during(h)
				pass(14 * time.Second)
				h.wantReady("spoke1.gpu", tc.before, "before the end of the grace: "+tc.reason)
				pass(2 * time.Second)
				h.wantReady("spoke1.gpu", tc.after, "after the grace: "+tc.reason)
				node := h.node("spoke1.gpu")
				if node == nil {
					return
				}
				if node.Labels[poolLabel] != "gpu" || node.Status.DaemonEndpoints.KubeletEndpoint.Port != port {
					t.Errorf("labels %v, port %d, want the pool and port %d", node.Labels, node.Status.DaemonEndpoints.KubeletEndpoint.Port, port)
				}
			})
		})
	}
}

func TestRemoveDeletesGroupNodes(t *testing.T) {
	left := func(name, provider string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Labels: map[string]string{wire.LabelCluster: "spoke1"}},
			Spec:       corev1.NodeSpec{ProviderID: provider},
		}
	}
	cases := map[string]struct {
		reason string
		before []*corev1.Node
		accept bool
		want   string // the one that stays
	}{
		"accepted before": {reason: "they are the cluster's", accept: true},
		"left by another hub process": {
			reason: "the record was deleted while no hub ran",
			before: []*corev1.Node{left("spoke1.gpu", "spokelet://id-0/gpu"), left("spoke1.std", "spokelet://id-0/std")},
		},
		"a foreign node": {
			reason: "what is not ours is not deleted, whatever its name and labels",
			before: []*corev1.Node{left("spoke1.gpu", "aws://x")}, want: "spoke1.gpu",
		},
		"of another cluster": {
			reason: "a name that begins alike is another",
			before: []*corev1.Node{left("spoke12.gpu", "spokelet://id-2/gpu")}, want: "spoke12.gpu",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				for _, n := range tc.before {
					if err := client.Tracker().Add(n); err != nil {
						t.Fatal(err)
					}
				}
				h := startHub(t, client)
				defer h.stop()
				if tc.accept {
					h.split()
				}
				h.disconnect("spoke1", "removed")
				if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
					t.Fatal(err)
				}
				h.provider.Forget("spoke1")
				pass(time.Second)
				for _, node := range []string{"spoke1", "spoke1.gpu", "spoke1.std", "spoke12.gpu"} {
					if got := h.node(node) != nil; got != (node == tc.want) {
						t.Errorf("%s: %s is there: %t", tc.reason, node, got)
					}
				}
				if len(h.endpoints.open)+len(h.provider.nodes)+len(h.provider.ports.byPort)+len(h.pods.expected) != 0 {
					t.Errorf("left behind: endpoints %v, nodes %v, expected %v", h.endpoints.open, h.provider.nodes, h.pods.expected)
				}
			})
		})
	}
}

func TestRegistrationConditionNamesTakenGroupNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spoke1.gpu", UID: "f"}, Spec: corev1.NodeSpec{ProviderID: "aws://x"}}
		h := startHub(t, fake.NewSimpleClientset(foreign))
		defer h.stop()
		r, _ := reconciler(t, h.provider, record(nil))
		condition := func() *metav1.Condition {
			t.Helper()
			reconcileOnce(t, r)
			return meta.FindStatusCondition(recordOf(t, r).Status.Conditions, ConditionNodeRegistered)
		}
		condition()
		h.connect("spoke1")
		h.group("spoke1", "gpu", of("4"))
		h.summary("spoke1", pooled("gpu"))
		pass(time.Second)
		if c := condition(); c == nil || c.Reason != ReasonNameTaken || !strings.Contains(c.Message, `"spoke1.gpu"`) {
			t.Errorf("condition while the name is taken: %+v", c)
		}
		if diff := cmp.Diff(foreign, h.node("spoke1.gpu")); diff != "" {
			t.Errorf("foreign node was touched:\n%s", diff)
		}
		h.wantReady("spoke1", "True NodesReady", "whoever has the name of a group")
		h.summary("spoke1", pooled())
		pass(time.Second)
		if c := condition(); c == nil || c.Reason != ReasonRegistered {
			t.Errorf("condition when there is no such group any more: %+v", c)
		}
	})
}

func TestGroupsOfClusterAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		for i := range 10 * wire.NodeGroupsMax {
			h.provider.SetGroupSummary("spoke1", fmt.Sprintf("g%d", i), of("1"))
			if got := len(h.provider.nodes); got > maxKnownGroups+1 {
				t.Fatalf("%d nodes are held for one cluster", got)
			}
		}
		h.wantReady("spoke1.gpu", "True NodesReady", "whatever else is said")
		h.summary("spoke1", pooled("gpu", "late", "std"))
		h.group("spoke1", "late", of("1"))
		pass(time.Second)
		h.wantReady("spoke1.late", "True NodesReady", "for what is named has room")
	})
}

func TestGroupsKeptForPodsDoNotCountAgainstLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.ensure(spoke1)
		h.connect("spoke1")
		show := func(generation string) (names []string) {
			for i := range wire.NodeGroupsMax {
				names = append(names, fmt.Sprintf("%s%d", generation, i))
				h.provider.SetGroupSummary("spoke1", names[i], of("1"))
				h.pods.bind("spoke1."+names[i], true)
			}
			h.summary("spoke1", pooled(names...))
			pass(time.Second)
			return names
		}
		old := show("old")
		for i, name := range show("new") {
			h.wantReady("spoke1."+name, "True NodesReady", "for what is named has room")
			h.wantReady("spoke1."+old[i], "False NoNodes", "while pods are bound to it")
		}
		show("more")
		if got := len(h.provider.nodes); got > maxKnownGroups+1 {
			t.Errorf("%d nodes are held for one cluster", got)
		}
	})
}

func TestGroupSummaryReconcilesOnlyItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		before := h.pods.asked
		h.group("spoke1", "gpu", of("6"))
		pass(time.Second)
		if got := h.pods.asked - before; got != 0 {
			t.Errorf("%d nodes of groups were looked at", got)
		}
		if got := h.node("spoke1.gpu").Status.Capacity.Cpu().String(); got != "6" {
			t.Errorf("capacity: got %s CPUs, want the 6 that the group says", got)
		}
	})
}

func TestRecordLabelWinsOverSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		c := spoke1
		c.Labels = map[string]string{poolLabel: "none"}
		h.ensure(c)
		h.connect("spoke1")
		h.group("spoke1", "gpu", of("4"))
		h.summary("spoke1", pooled("gpu"))
		pass(time.Second)
		if got := h.node("spoke1.gpu").Labels[poolLabel]; got != "none" {
			t.Errorf("label: got %q, want what the hub's administrator set", got)
		}
	})
}

func TestHostnameLabelIsValid(t *testing.T) {
	long := strings.Repeat("c", 63)
	a, b := hostnameLabel(long+".a"), hostnameLabel(long+".b")
	if len(a) > 63 || len(b) > 63 || a == b || hostnameLabel("spoke1.gpu") != "spoke1.gpu" {
		t.Errorf("hostnames %q and %q", a, b)
	}
}
