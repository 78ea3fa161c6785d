// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod"
	"github.com/spokelet/spokelet/provider/pod/address"
)

// consenting is a cluster whose record names a label.
func consenting(label string) Cluster {
	c := spoke1
	c.Consent = pod.Consent{SplitLabel: label}
	return c
}

// splitBy is a cluster in one group by a label. The whole of it has 12 CPUs.
func splitBy(label, group string) wire.NodeSummary {
	s := healthy()
	all := wire.Quantities{"cpu": "12", "pods": "330"}
	s.Split = &wire.NodeSplit{Label: label, Groups: []string{group}, Capacity: all, Allocatable: all}
	return s
}

func TestClusterIsSplitOnlyByConsentedLabel(t *testing.T) {
	cases := map[string]struct {
		reason   string
		consents string
		split    bool
	}{
		"no consent":     {reason: "env=prod would attract pods that select by it, with their Secrets"},
		"another label":  {reason: "consent is to one label", consents: poolLabel},
		"the same label": {reason: "the hub's administrator knows what selects by it", consents: "env", split: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewSimpleClientset())
				defer h.stop()
				h.ensure(consenting(tc.consents))
				h.connect("spoke1")
				h.group("spoke1", "prod", of("4"))
				h.summary("spoke1", splitBy("env", "prod"))
				pass(time.Second)
				if got := h.node("spoke1.prod") != nil; got != tc.split {
					t.Errorf("%s: the group is a node: %t, want %t", tc.reason, got, tc.split)
				}
				nodes, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "env=prod"})
				if err != nil || len(nodes.Items) > 0 != tc.split {
					t.Errorf("%s: %d nodes attract pods that select env=prod, %v", tc.reason, len(nodes.Items), err)
				}
				h.wantReady("spoke1", "True NodesReady", tc.reason)
				own, cpu, zone := h.node("spoke1"), "12", ""
				if tc.split {
					cpu, zone = "8", "a"
				}
				if got := own.Status.Capacity.Cpu().String(); got != cpu {
					t.Errorf("the cluster's own node has %s CPUs, want %s", got, cpu)
				}
				if got := own.Labels[corev1.LabelTopologyZone]; got != zone {
					t.Errorf("the cluster's own node is in zone %q, want %q: the rest is not the cluster", got, zone)
				}
				if diff := cmp.Diff(pod.Consent{SplitLabel: tc.consents}, h.pods.consents["spoke1"]); diff != "" {
					t.Errorf("consent for pods (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSplitConsentIsWithdrawnAndGivenLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.split()
		h.pods.bind("spoke1.gpu", true)
		h.ensure(consenting(""))
		pass(time.Second)
		if h.node("spoke1.std") != nil {
			t.Error("the node of a group without pods is there after consent was withdrawn")
		}
		h.wantReady("spoke1.gpu", "False NoNodes", "while a pod is bound to it")
		if got, ok := h.node("spoke1.gpu").Labels[poolLabel]; ok {
			t.Errorf("the node still bears the label, with value %q", got)
		}
		h.ensure(consenting(poolLabel))
		pass(time.Second)
		h.wantReady("spoke1.gpu", "True NodesReady", "when consent is given again")
		h.group("spoke1", "std", of("2"))
		pass(time.Second)
		h.wantReady("spoke1.std", "True NodesReady", "when the agent tells of it again")
		if got := h.node("spoke1.gpu").Labels[poolLabel]; got != "gpu" {
			t.Errorf("label of the group: %q", got)
		}
	})
}

func TestSplitConsentWithdrawnWhileHubWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		first := startHub(t, client)
		first.split()
		first.stop()
		h := startHub(t, client)
		defer h.stop()
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		h.pods.bind("spoke1.gpu", true)
		h.pods.bind("spoke1.std", true)
		h.ensure(consenting(""))
		pass(time.Second)
		for _, name := range []string{"spoke1.gpu", "spoke1.std"} {
			if node := h.node(name); node == nil || node.Labels[poolLabel] != "" {
				t.Errorf("node %s of a group with pods: %v", name, node)
			}
		}
		if err := pods.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		h.pods.bind("spoke1.gpu", false)
		h.pods.bind("spoke1.std", false)
		h.provider.NotifyGroupIdle()
		pass(time.Second)
		if h.node("spoke1.gpu") != nil || h.node("spoke1.std") != nil {
			t.Error("a node is there after the last pod")
		}
	})
}

// reconciled returns the conditions of the record after some reconciles.
func reconciled(t *testing.T, r *recordReconciler) map[string]string {
	t.Helper()
	for range 3 { // after the first there is nothing to be said
		reconcileOnce(t, r)
	}
	out := map[string]string{}
	for _, condition := range recordOf(t, r).Status.Conditions {
		out[condition.Type] = string(condition.Status) + " " + condition.Reason
	}
	return out
}

func wantConditions(t *testing.T, r *recordReconciler, want map[string]string, when string) {
	t.Helper()
	if diff := cmp.Diff(want, reconciled(t, r)); diff != "" {
		t.Errorf("conditions %s (-want +got):\n%s", when, diff)
	}
}

// annotate changes the record's annotations; "" takes one away.
func annotate(t *testing.T, r *recordReconciler, name, value string) {
	t.Helper()
	c := recordOf(t, r)
	c.Annotations = maps.Clone(c.Annotations)
	delete(c.Annotations, name)
	if value != "" {
		c.Annotations[name] = value
	}
	if err := r.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func TestSplitConditionNamesRequestedLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		r, recorder := reconciler(t, h.provider, record(nil))
		again := 0
		h.provider.enqueueAfter = func(string, time.Duration) { again++ }
		h.connect("spoke1")
		wantConditions(t, r, map[string]string{}, "before the agent has said anything")
		again = 0
		h.summary("spoke1", splitBy("env", "prod"))
		h.summary("spoke1", splitBy("env", "test"))
		if again != 1 {
			t.Errorf("the record was looked at again %d times, want once: the label is the same", again)
		}
		wantConditions(t, r, map[string]string{ConditionSplitConsented: "False " + ReasonSplitNotConsented}, "without consent")
		if said := <-recorder.Events; !strings.Contains(said, wire.AnnotationSplitLabel+"=env") {
			t.Errorf("event %q does not say what to annotate", said)
		}
		annotate(t, r, wire.AnnotationSplitLabel, "env")
		wantConditions(t, r, map[string]string{ConditionSplitConsented: "True " + ReasonSplitConsented}, "with consent")
		if got := h.provider.SplitLabel("spoke1"); got != "env" {
			t.Errorf("label for figures: %q", got)
		}
		h.summary("spoke1", healthy())
		wantConditions(t, r, map[string]string{ConditionSplitConsented: "True " + ReasonNotSplit}, "of a cluster that asks for nothing")
		if got := len(recorder.Events); got != 2 {
			t.Errorf("%d more events, want one for each change", got)
		}
	})
}

func TestInvalidPodAddressesAnnotationAllowsNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		r, recorder := reconciler(t, h.provider, record(func(c *clusterv1.ManagedCluster) {
			c.Annotations[AnnotationPodAddresses] = "10.1.0.0/33"
		}))
		wantConditions(t, r, map[string]string{ConditionPodAddressesValid: "False " + ReasonPodAddressesInvalid}, "of one that cannot be read")
		none, _ := address.ParseLimit(address.None)
		if !h.pods.consents["spoke1"].Addresses.Equal(none) {
			t.Error("some address is allowed")
		}
		annotate(t, r, AnnotationPodAddresses, "10.1.0.0/16")
		wantConditions(t, r, map[string]string{ConditionPodAddressesValid: "True " + ReasonPodAddressesValid}, "of one that can be read")
		if got := len(recorder.Events); got != 2 {
			t.Errorf("%d events, want one for each change", got)
		}
	})
}

func TestRecordConditionsHaveSeparateFieldOwners(t *testing.T) {
	r := &recordReconciler{provider: &Provider{}}
	owners := map[string]bool{}
	for _, s := range []recordCondition{r.registrationCondition("spoke1"), splitCondition(record(nil), splitRequest{}), podAddressesCondition(nil), systemLabelsCondition(systemLabels{})} {
		owners[s.fieldOwner] = true
	}
	if len(owners) != 4 {
		t.Errorf("owners %v: whoever applies one condition takes away its others", owners)
	}
}
