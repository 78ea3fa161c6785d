// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/quota"
)

func TestNodeFollowsSessionAndSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.ensure(spoke1)
		h.wantReady("spoke1", "False TunnelDisconnected", "before the first session")
		h.connect("spoke1")
		time.Sleep(pushSpacing)
		synctest.Wait()
		h.wantReady("spoke1", "False NodeSummaryMissing", "before the first summary")
		h.summary("spoke1", healthy())
		time.Sleep(pushSpacing)
		synctest.Wait()
		h.wantReady("spoke1", "True NodesReady", "with a summary")

		time.Sleep(time.Minute)
		synctest.Wait()
		h.disconnect("spoke1", "connection lost")
		h.wantReady("spoke1", "False TunnelDisconnected", "at once when the session ends")
		node := h.node("spoke1")
		if got, want := findCondition(node.Status.Conditions, corev1.NodeReady).Message, "cluster spoke1 is not connected: connection lost"; got != want {
			t.Errorf("message: got %q, want %q", got, want)
		}
		if got := node.Status.Capacity.Cpu().String(); got != "8" {
			t.Errorf("capacity of a disconnected cluster: got %s CPUs, want the last known 8", got)
		}

		time.Sleep(time.Minute)
		h.connect("spoke1")
		h.wantReady("spoke1", "True NodesReady", "at once, from the last summary, when the session is back")
	})
}

func TestNodeObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		c := spoke1
		c.Labels = map[string]string{"region": "eu", "beta.kubernetes.io/os": "linux", "type": "mine", "spokelet.io/cluster": "other"}
		h.ensure(c)
		h.connect("spoke1")
		h.summary("spoke1", healthy())
		time.Sleep(pushSpacing)
		synctest.Wait()
		node := h.node("spoke1")
		wantLabels := map[string]string{
			"region":                      "eu",
			"type":                        "virtual-kubelet",
			"spokelet.io/cluster":         "spoke1",
			"kubernetes.io/hostname":      "spoke1",
			"topology.kubernetes.io/zone": "a",
			"node.kubernetes.io/exclude-from-external-load-balancers": "true",
			"node.kubernetes.io/exclude-disruption":                   "true",
		}
		if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		wantSpec := corev1.NodeSpec{
			ProviderID: "spokelet://id-1",
			Taints:     []corev1.Taint{{Key: "spokelet.io/virtual-node", Effect: corev1.TaintEffectNoSchedule}},
		}
		if diff := cmp.Diff(wantSpec, node.Spec); diff != "" {
			t.Errorf("spec (-want +got):\n%s", diff)
		}
		if got := node.Status.Addresses; len(got) != 1 || got[0].Address != "192.0.2.10" || got[0].Type != corev1.NodeInternalIP {
			t.Errorf("addresses: got %v", got)
		}
		port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
		if port < 20000 || port > 29999 || h.endpoints.open["spoke1"] != port {
			t.Errorf("kubelet port %d, open %v", port, h.endpoints.open)
		}
		if got := node.Status.NodeInfo; got.KubeletVersion != "v1.37.2" || got.Architecture != "amd64" {
			t.Errorf("node info: got %+v", got)
		}
	})
}

func TestOnlyLeaseIsWrittenAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		synctest.Wait()
		count := h.requests()
		h.summary("spoke1", healthy()) // the same again is no news
		h.ensure(spoke1)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"update leases": 60}, count()); diff != "" {
			t.Errorf("requests in ten minutes at rest (-want +got):\n%s", diff)
		}
		lease, err := h.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "spoke1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := *lease.Spec.LeaseDurationSeconds; got != 40 {
			t.Errorf("lease lasts %d s, want 40", got)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > 10*time.Second {
			t.Errorf("lease was renewed %v ago", age)
		}
	})
}

func TestReadyNodeHasReconnectGraceAfterStart(t *testing.T) {
	cases := map[string]struct {
		reason string
		during func(h *hub)
		// at 14 s and at 16 s after the start
		before, after string
	}{
		"it does not come back": {
			reason: "what the hub does not know yet is no news, until the grace is over",
			during: func(*hub) {},
			before: "True NodesReady", after: "False TunnelDisconnected",
		},
		"it comes back": {
			reason: "a restart of the hub is not seen on the node",
			during: func(h *hub) { h.connect("spoke1"); h.summary("spoke1", healthy()) },
			before: "True NodesReady", after: "True NodesReady",
		},
		"it comes back and says nothing": {
			reason: "ready is not said for ever of a cluster that does not say it",
			during: func(h *hub) { h.connect("spoke1") },
			before: "True NodesReady", after: "False NodeSummaryMissing",
		},
		"it comes back and goes": {
			reason: "the grace is for the hub's own restart and not for a session that was lost since",
			during: func(h *hub) { h.connect("spoke1"); h.disconnect("spoke1", "lost") },
			before: "False TunnelDisconnected", after: "False TunnelDisconnected",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				first := startHub(t, client)
				first.join()
				time.Sleep(time.Second)
				first.stop()
				port := first.node("spoke1").Status.DaemonEndpoints.KubeletEndpoint.Port

				h := startHub(t, client)
				defer h.stop()
				h.ensure(spoke1)
				tc.during(h)
				time.Sleep(14 * time.Second)
				synctest.Wait()
				h.wantReady("spoke1", tc.before, "before the end of the grace: "+tc.reason)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				h.wantReady("spoke1", tc.after, "after the grace: "+tc.reason)
				if got := h.node("spoke1").Status.DaemonEndpoints.KubeletEndpoint.Port; got != port {
					t.Errorf("port changed from %d to %d", port, got)
				}
			})
		})
	}
}

func TestDeletedNodeIsRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		if err := h.client.CoreV1().Nodes().Delete(t.Context(), "spoke1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		h.wantReady("spoke1", "True NodesReady", "after its deletion")
	})
}

func TestDriftIsRepaired(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Node)
	}{
		"the condition": {
			reason: "the node lifecycle controller says Unknown after an outage of the API server",
			change: func(n *corev1.Node) {
				c := findCondition(n.Status.Conditions, corev1.NodeReady)
				c.Status, c.Reason = corev1.ConditionUnknown, "NodeStatusUnknown"
			},
		},
		"a label":       {reason: "labels are ours to keep", change: func(n *corev1.Node) { n.Labels["region"] = "mars" }},
		"our own label": {reason: "without it the node is no longer watched", change: func(n *corev1.Node) { delete(n.Labels, wire.LabelCluster) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, fake.NewSimpleClientset())
				defer h.stop()
				h.join()
				time.Sleep(time.Minute)
				node := h.node("spoke1")
				tc.change(node)
				if _, err := h.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				h.wantReady("spoke1", "True NodesReady", tc.reason)
				if got := h.node("spoke1").Labels; got["region"] != "eu" || got[wire.LabelCluster] != "spoke1" {
					t.Errorf("%s: labels are %v", tc.reason, got)
				}
			})
		})
	}
}

func TestForeignNodeBlocksNameUntilDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spoke1", UID: "f"}, Spec: corev1.NodeSpec{ProviderID: "aws://x"}}
		h := startHub(t, fake.NewSimpleClientset(foreign))
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(foreign, h.node("spoke1")); diff != "" {
			t.Errorf("foreign node was touched:\n%s", diff)
		}
		if got, _ := h.provider.registrationOf("spoke1"); got != nameTaken {
			t.Errorf("registration: got %v, want nameTaken", got)
		}
		if err := h.client.CoreV1().Nodes().Delete(t.Context(), "spoke1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		h.wantReady("spoke1", "True NodesReady", "once the foreign node is gone")
		if got, _ := h.provider.registrationOf("spoke1"); got != registered {
			t.Errorf("registration: got %v, want registered", got)
		}
	})
}

func TestRemoveDeletesNode(t *testing.T) {
	cases := map[string]struct {
		reason string
		before []*corev1.Node
		accept bool
		want   bool // the Node is still there
	}{
		"accepted before": {reason: "the record was deleted or no longer accepted", accept: true},
		"left by another hub process": {
			reason: "the record was deleted while no hub ran",
			before: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "spoke1", UID: "u", Labels: map[string]string{wire.LabelCluster: "spoke1"}}, Spec: corev1.NodeSpec{ProviderID: "spokelet://id-0"}}},
		},
		"a foreign node": {
			reason: "what is not ours is not deleted, whatever its labels",
			before: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "spoke1", UID: "u", Labels: map[string]string{wire.LabelCluster: "spoke1"}}}},
			want:   true,
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
					h.ensure(spoke1)
				}
				if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if got := h.node("spoke1") != nil; got != tc.want {
					t.Errorf("%s: node is there: got %t, want %t", tc.reason, got, tc.want)
				}
				if len(h.endpoints.open) != 0 || len(h.provider.nodes) != 0 || len(h.provider.ports.byPort) != 0 {
					t.Errorf("left behind: endpoints %v, nodes %v, ports %v", h.endpoints.open, h.provider.nodes, h.provider.ports.byPort)
				}
			})
		})
	}
}

func TestRecreatedClusterGetsNewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.ensure(spoke1)
		again := spoke1
		again.ID = "id-2"
		h.ensure(again)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.node("spoke1").Spec.ProviderID; got != "spokelet://id-2" {
			t.Errorf("providerID: got %q, want the new cluster's", got)
		}
	})
}

func TestFailedStatusWriteIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		down := withOutage(client)
		h := startHub(t, client)
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		down.begin()
		h.disconnect("spoke1", "lost")
		time.Sleep(time.Minute)
		synctest.Wait()
		down.end()
		time.Sleep(45 * time.Second)
		synctest.Wait()
		h.wantReady("spoke1", "False TunnelDisconnected", "after the API server is back")
	})
}

func TestAPIServerOutageChangesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset()
		down := withOutage(client)
		h := startHub(t, client)
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		before := h.node("spoke1")
		down.begin()
		time.Sleep(30 * time.Second)
		down.end()
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff(before, h.node("spoke1")); diff != "" {
			t.Errorf("node changed (-before +after):\n%s", diff)
		}
	})
}

func TestFlappingClusterIsWrittenAtSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		count := h.requests()
		for range 1000 {
			h.disconnect("spoke1", "flap")
			time.Sleep(time.Millisecond)
			h.connect("spoke1")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := count()["patch nodes"]; got > 8 {
			t.Errorf("%d status writes in one second of flapping", got)
		}
		h.wantReady("spoke1", "True NodesReady", "after the last flap")
	})
}

func TestFlappingClusterIsReadyAtLimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.join()
		pass(time.Minute)
		count := h.requests()
		const lasting = 100 * time.Second
		for range lasting / time.Second {
			h.disconnect("spoke1", "flap")
			h.wantReady("spoke1", "False TunnelDisconnected", "as soon as it is gone")
			pass(time.Second / 2)
			h.connect("spoke1")
			pass(time.Second / 2)
		}
		// Each time it goes as it came.
		if got, most := count()["patch nodes"], 2*(reconnectBurst+int(lasting/reconnectEvery)+1); got > most || got < most/2 {
			t.Errorf("%d status writes in %s of flapping, want at most %d", got, lasting, most)
		}
		pass(reconnectEvery)
		h.wantReady("spoke1", "True NodesReady", "when it stays")
	})
}

func TestSummariesAreWrittenAtByteRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 1 << 10, 20 << 10
		writes := quota.NewWrites(quota.Rate{PerSecond: rate, Burst: burst}, quota.Rate{PerSecond: 1 << 30, Burst: 1 << 30})
		h := startHub(t, fake.NewSimpleClientset(), func(c *Config) { c.Writes = writes })
		defer h.stop()
		h.join()
		time.Sleep(time.Minute)
		count := h.requests()
		said := healthy()
		for i := range 100 {
			said.NodeInfo.OSImage = strconv.Itoa(i)
			h.summary("spoke1", said)
			time.Sleep(pushSpacing)
		}
		size := h.node("spoke1").Size()
		if got, most := count()["patch nodes"], (burst+20*rate)/size+1; got > most || got < most/2 {
			t.Errorf("%d writes of %d bytes in 20 s, want at most %d", got, size, most)
		}
		writes.Spend("spoke1", 10*burst)
		h.disconnect("spoke1", "lost")
		h.wantReady("spoke1", "False TunnelDisconnected", "at once, whatever the cluster has had written")
		h.connect("spoke1")
		time.Sleep(2 * pushSpacing)
		h.wantReady("spoke1", "True NodesReady", "when it is back")
		said.NodeInfo.OSImage = "last"
		h.summary("spoke1", said)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := h.node("spoke1").Status.NodeInfo.OSImage; got != "last" {
			t.Errorf("what was said last is not there, but %q", got)
		}
	})
}

func TestUsedPortIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		usual := h.provider.ports.low + h.provider.ports.preferredOffset("spoke1")
		h.endpoints.busy[usual] = true
		h.ensure(spoke1)
		if got := h.node("spoke1").Status.DaemonEndpoints.KubeletEndpoint.Port; got != usual+1 {
			t.Errorf("port: got %d, want the one after the busy %d", got, usual)
		}
	})
}

func TestEnsureWaitsForStart(t *testing.T) {
	p := &Provider{started: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Ensure(ctx, spoke1); err == nil {
		t.Error("Ensure() returned before the start")
	}
	if err := p.Remove(ctx, "spoke1"); err == nil {
		t.Error("Remove() returned before the start")
	}
}

func TestPodsAreWatchedWhileNodeExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, fake.NewSimpleClientset())
		defer h.stop()
		h.ensure(spoke1)
		if !h.pods.watched["spoke1"] {
			t.Error("the node is there, and its pods are not watched")
		}
		h.ensure(spoke1)
		if n := h.pods.began["spoke1"]; n != 1 {
			t.Errorf("they are watched %d times", n)
		}
		// The cluster comes back before its node has gone: what was published is
		// forgotten all the same.
		if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
			t.Fatal(err)
		}
		h.provider.Forget("spoke1")
		h.ensure(spoke1)
		if n := h.pods.began["spoke1"]; n != 2 || !h.pods.watched["spoke1"] {
			t.Errorf("the watch has begun %d times", n)
		}
		if err := h.provider.Remove(t.Context(), "spoke1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h.pods.watched["spoke1"] {
			t.Error("the node is gone, and its pods are watched")
		}
	})
}
