// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/spokelet/spokelet/api/wire"
)

func TestOnlyAdoptedNodesAreExpected(t *testing.T) {
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spoke1.gpu", UID: "f"}, Spec: corev1.NodeSpec{ProviderID: "aws://x"}}
	name := func(h *hub) {
		h.connect("spoke1")
		h.group("spoke1", "gpu", of("4"))
		h.summary("spoke1", pooled("gpu"))
	}
	cases := map[string]struct {
		reason string
		before func(t *testing.T, client *fake.Clientset) // what is there at the start
		during func(h *hub)
		want   bool
	}{
		"of an earlier process": {
			reason: "it may have pods", want: true,
			before: left,
		},
		"its label was taken away": {
			reason: "the provider id says whose it is", want: true,
			before: func(t *testing.T, client *fake.Clientset) {
				left(t, client)
				change(t, client, "spoke1.gpu", func(n *corev1.Node) { delete(n.Labels, wire.LabelCluster) })
			},
		},
		"a group that appears": {
			reason: "it has none, and its Node may never be had",
			before: func(*testing.T, *fake.Clientset) {},
			during: name,
		},
		"a group whose name is taken": {
			reason: "the pods are somebody else's",
			before: func(t *testing.T, client *fake.Clientset) {
				if err := client.Tracker().Add(foreign); err != nil {
					t.Fatal(err)
				}
			},
			during: name,
		},
		"its name is taken later": {
			reason: "the pods are somebody else's",
			before: left,
			during: func(h *hub) {
				nodes := h.client.CoreV1().Nodes()
				for taken := false; !taken; {
					if err := nodes.Delete(h.t.Context(), "spoke1.gpu", metav1.DeleteOptions{}); err != nil {
						h.t.Fatal(err)
					}
					_, err := nodes.Create(h.t.Context(), foreign, metav1.CreateOptions{})
					taken = err == nil
					if err != nil && !apierrors.IsAlreadyExists(err) { // the hub was faster
						h.t.Fatal(err)
					}
				}
				pass(time.Second)
			},
		},
		"its cluster is forgotten and wanted again": {
			reason: "what is known of its pods begins anew", want: true,
			before: func(*testing.T, *fake.Clientset) {},
			during: func(h *hub) {
				name(h)
				h.provider.Forget("spoke1")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				tc.before(t, client)
				h := startHub(t, client)
				defer h.stop()
				h.ensure(spoke1)
				if tc.during != nil {
					tc.during(h)
				}
				if got := h.pods.expects("spoke1.gpu"); got != tc.want {
					t.Errorf("%s: expected is %t", tc.reason, got)
				}
				if node := h.node("spoke1.gpu"); node.UID != foreign.UID && node.Labels[wire.LabelCluster] != "spoke1" {
					t.Errorf("labels: %v", node.Labels)
				}
			})
		})
	}
}

// left has a hub process leave the nodes of a cluster in two groups.
func left(t *testing.T, client *fake.Clientset) {
	t.Helper()
	h := startHub(t, client)
	h.split()
	h.stop()
}

func change(t *testing.T, client *fake.Clientset, name string, f func(*corev1.Node)) {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f(node)
	if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestVanishedGroupWithoutEndpointIsRemoved(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{NodeName: "spoke1.gpu"},
	}
	cases := map[string]struct {
		reason string
		pods   []*corev1.Pod
		want   bool
	}{
		"without pods": {reason: "nothing is to be waited for"},
		"with a pod":   {reason: "it may run", pods: []*corev1.Pod{pod}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				left(t, client)
				for _, p := range tc.pods {
					if err := client.Tracker().Add(p); err != nil {
						t.Fatal(err)
					}
				}
				h := startHub(t, client)
				defer h.stop()
				h.endpoints.occupy(20000, 29999)
				h.pods.bind("spoke1.gpu", true) // which is what is said while they are not listed
				h.ensure(spoke1)
				h.connect("spoke1")
				h.summary("spoke1", pooled())
				pass(time.Minute)
				if there, expected := h.node("spoke1.gpu") != nil, h.pods.expects("spoke1.gpu"); there != tc.want || expected != tc.want {
					t.Errorf("%s: node is there: %t, expected: %t", tc.reason, there, expected)
				}
			})
		})
	}
}

func TestTakenClusterNameDoesNotBlockGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spoke1", UID: "f"}, Spec: corev1.NodeSpec{ProviderID: "aws://x"}}
		h := startHub(t, fake.NewSimpleClientset(foreign))
		defer h.stop()
		r, _ := reconciler(t, h.provider, record(nil))
		condition := func() string {
			t.Helper()
			reconcileOnce(t, r)
			if got := meta.FindStatusCondition(recordOf(t, r).Status.Conditions, ConditionNodeRegistered); got != nil {
				return got.Reason + ": " + got.Message
			}
			return ""
		}
		condition()
		h.connect("spoke1")
		h.group("spoke1", "gpu", of("4"))
		h.summary("spoke1", pooled("gpu"))
		pass(time.Second)
		h.wantReady("spoke1.gpu", "True NodesReady", "whoever has the name of its cluster")
		if diff := cmp.Diff(foreign, h.node("spoke1")); diff != "" {
			t.Errorf("foreign node was touched:\n%s", diff)
		}
		if got := condition(); !strings.HasPrefix(got, ReasonNameTaken+": ") || !strings.Contains(got, `a Node "spoke1" exists`) {
			t.Errorf("condition while the name is taken: %s", got)
		}
		if !h.pods.released["spoke1"] || !h.pods.watched["spoke1.gpu"] || h.pods.watched["spoke1"] {
			t.Errorf("somebody else's pods are waited for: released %v, watched %v", h.pods.released, h.pods.watched)
		}
		if err := h.client.CoreV1().Nodes().Delete(t.Context(), "spoke1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		h.wantReady("spoke1", "True NodesReady", "when the name is free")
		h.wantReady("spoke1.gpu", "True NodesReady", "all the time")
		if h.pods.began["spoke1.gpu"] != 1 || h.pods.released["spoke1"] || !h.pods.watched["spoke1"] {
			t.Errorf("the group was watched %d times; released %v, watched %v", h.pods.began["spoke1.gpu"], h.pods.released, h.pods.watched)
		}
		if got := condition(); !strings.HasPrefix(got, ReasonRegistered+": ") {
			t.Errorf("condition when the name is free: %s", got)
		}
	})
}

func TestAdoptedGroupNodeHasEndpoint(t *testing.T) {
	const gpu = "spoke1.gpu"
	bears := func(port int32) func(*testing.T, *fake.Clientset) {
		return func(t *testing.T, client *fake.Clientset) {
			change(t, client, gpu, func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = port })
		}
	}
	cases := map[string]struct {
		reason string
		before func(t *testing.T, client *fake.Clientset)
		during func(h *hub)
	}{
		"without a port": {reason: "it gets one", before: bears(0)},
		"with a port of another range": {
			reason: "the hub's option was changed: it gets one of the new", before: bears(10250),
		},
		"with the port of another node": {
			reason: "one of the two gets another",
			before: func(t *testing.T, client *fake.Clientset) {
				std, err := client.CoreV1().Nodes().Get(t.Context(), "spoke1.std", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				bears(std.Status.DaemonEndpoints.KubeletEndpoint.Port)(t, client)
			},
		},
		"with no port to be had at first": {
			reason: "it is tried again", before: bears(0),
			during: func(h *hub) {
				h.endpoints.occupy(20000, 29999)
				h.ensure(spoke1)
				pass(time.Minute)
				if h.pods.began[gpu] != 0 {
					h.t.Error("it is served without an endpoint")
				}
				h.endpoints.vacate()
				pass(2 * time.Minute)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				left(t, client)
				tc.before(t, client)
				h := startHub(t, client)
				defer h.stop()
				if tc.during != nil {
					tc.during(h)
				}
				h.ensure(spoke1)
				pass(time.Second)
				ports := map[int32]bool{}
				for _, name := range []string{"spoke1", gpu, "spoke1.std"} {
					port := h.endpoints.open[name]
					if got := h.node(name).Status.DaemonEndpoints.KubeletEndpoint.Port; got != port || port < 20000 || ports[port] {
						t.Errorf("%s: %s bears port %d, and is served on %d", tc.reason, name, got, port)
					}
					ports[port] = true
					if !h.pods.watched[name] {
						t.Errorf("%s: the pods of %s are not watched", tc.reason, name)
					}
				}
			})
		})
	}
}

func TestNodeListsBypassWatchCache(t *testing.T) {
	client := fake.NewSimpleClientset()
	nodes, ok := nodeListerWatcher(client, metav1.ListOptions{}).(cache.ListerWithContext)
	if !ok {
		t.Fatal("it does not list")
	}
	if _, err := nodes.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Fatal(err)
	}
	list, ok := client.Actions()[0].(k8stesting.ListActionImpl)
	if got := list.GetListOptions().ResourceVersion; !ok || got != "" {
		t.Errorf("listed as of %q", got)
	}
}

func TestUnlabelledGroupNodeIsRemovedWithCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		left(t, client)
		change(t, client, "spoke1.gpu", func(n *corev1.Node) { delete(n.Labels, wire.LabelCluster) })
		h := startHub(t, client)
		defer h.stop()
		if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if h.node("spoke1.gpu") != nil {
			t.Error("it is there")
		}
	})
}
