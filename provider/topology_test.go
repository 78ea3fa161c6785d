// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/spokelet/spokelet/api/wire"
)

// in is a cluster that lies there.
func in(zones, regions []string) wire.NodeSummary {
	s := healthy()
	s.Zones, s.Regions = zones, regions
	return s
}

// lose has somebody delete a Node, and the hub make it again.
func (h *hub) lose(name string) {
	h.t.Helper()
	if err := h.client.CoreV1().Nodes().Delete(h.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		h.t.Fatal(err)
	}
	pass(time.Minute)
}

// leaveNode runs a hub that ends, and leaves the Node of spoke1 in a zone and a region.
func leaveNode(t *testing.T, client *fake.Clientset, before func(h *hub)) {
	t.Helper()
	h := startHub(t, client)
	defer h.stop()
	h.ensure(spoke1)
	h.summary("spoke1", in([]string{"a"}, []string{"r"}))
	pass(time.Second)
	if before != nil {
		before(h)
	}
}

// places are the labels of spoke1's Node that say where the cluster lies.
func (h *hub) places() map[string]string {
	h.t.Helper()
	got := map[string]string{}
	for name, value := range h.node("spoke1").Labels {
		if name == corev1.LabelTopologyZone || name == corev1.LabelTopologyRegion {
			got[name] = value
		}
	}
	return got
}

func TestTopologyLabelsSurviveRestart(t *testing.T) {
	const zone, region = corev1.LabelTopologyZone, corev1.LabelTopologyRegion
	cases := map[string]struct {
		reason string
		record map[string]string
		before func(h *hub) // is left by the process before
		during func(h *hub)
		want   map[string]string
	}{
		"nobody comes back": {
			reason: "what the hub does not know is no news", during: func(*hub) { pass(time.Hour) },
			want: map[string]string{zone: "a", region: "r"},
		},
		"a session without a summary": {
			reason: "it says nothing of that", during: func(h *hub) { h.connect("spoke1"); pass(time.Minute) },
			want: map[string]string{zone: "a", region: "r"},
		},
		"the agent says the same": {
			reason: "nothing has changed", during: func(h *hub) { h.summary("spoke1", in([]string{"a"}, []string{"r"})) },
			want: map[string]string{zone: "a", region: "r"},
		},
		"the agent says otherwise": {
			reason: "it knows", during: func(h *hub) { h.summary("spoke1", in([]string{"b"}, []string{"r"})) },
			want: map[string]string{zone: "b", region: "r"},
		},
		"the cluster lies in two zones now": {
			reason: "it knows", during: func(h *hub) { h.summary("spoke1", in([]string{"a", "b"}, []string{"r"})) },
			want: map[string]string{region: "r"},
		},
		"the Node is deleted meanwhile": {
			reason: "it is made again as it was", during: func(h *hub) { h.lose("spoke1") },
			want: map[string]string{zone: "a", region: "r"},
		},
		"the Node was made anew before, and not changed since": {
			reason: "what it was made with was said, too",
			before: func(h *hub) { h.lose("spoke1") },
			during: func(h *hub) { h.summary("spoke1", in(nil, []string{"r"})) },
			want:   map[string]string{region: "r"},
		},
		"the record says where it is": {
			reason: "an administrator's word is not an agent's to change", record: map[string]string{zone: "set"},
			during: func(*hub) {}, want: map[string]string{zone: "set", region: "r"},
		},
		"somebody else labelled the Node": {
			reason: "what is theirs is not taken back with what is ours",
			before: func(h *hub) {
				h.summary("spoke1", in(nil, []string{"r"}))
				pass(time.Second)
				change(h.t, h.client, "spoke1", func(n *corev1.Node) { n.Labels[zone] = "theirs" })
			},
			during: func(h *hub) {
				pass(time.Minute)
				h.connect("spoke1")
				h.summary("spoke1", in(nil, []string{"r"}))
			},
			want: map[string]string{zone: "theirs", region: "r"},
		},
		"the cluster is another": {
			reason: "nothing of the one before is its", during: func(h *hub) {
				h.provider.Forget("spoke1")
				other := spoke1
				other.ID = "id-2"
				h.ensure(other)
			},
			want: map[string]string{},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				leaveNode(t, client, tc.before)
				h := startHub(t, client)
				defer h.stop()
				c := spoke1
				c.Labels = tc.record
				h.ensure(c)
				tc.during(h)
				pass(time.Minute)
				if diff := cmp.Diff(tc.want, h.places()); diff != "" {
					t.Errorf("%s: labels (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// The Node of a cluster stays until another one takes its name, and may be read meanwhile.
func TestStatusOfEarlierClusterIsNotAdopted(t *testing.T) {
	other := spoke1
	other.ID = "id-2"
	ensure := func(h *hub) {
		if err := h.provider.Ensure(h.t.Context(), other); err != nil {
			h.t.Error(err)
		}
	}
	replace := func(h *hub) { h.provider.Forget("spoke1"); ensure(h) }
	cases := map[string]struct {
		reason string
		// during is done at the first request of a verb, then after all of them.
		verb         string
		during, then func(h *hub)
	}{
		"after the Node was read": {
			reason: "the record of the one before was deleted, and its Node read again",
			then:   func(h *hub) { h.provider.Forget("spoke1"); synctest.Wait(); ensure(h) },
		},
		"while the Node is read":    {reason: "what was read is of the one before", verb: "get", during: replace},
		"while the Node is written": {reason: "what was written is of the one before", verb: "patch", during: replace},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleClientset()
				leaveNode(t, client, nil)
				h := startHub(t, client)
				defer h.stop()
				var once sync.Once
				client.PrependReactor("*", "nodes", func(action ktesting.Action) (bool, runtime.Object, error) {
					if action.GetVerb() == tc.verb {
						once.Do(func() { tc.during(h) })
					}
					return false, nil, nil
				})
				h.ensure(spoke1)
				if tc.then != nil {
					tc.then(h)
				}
				pass(time.Minute)
				if got := h.node("spoke1"); got.Spec.ProviderID != other.providerID("") {
					t.Fatalf("the Node is that of %s", got.Spec.ProviderID)
				}
				if got := h.places(); len(got) > 0 {
					t.Errorf("%s: the Node says %v", tc.reason, got)
				}
				if got := h.node("spoke1").Status.Capacity; len(got) > 0 {
					t.Errorf("%s: the Node has %v", tc.reason, got)
				}
			})
		})
	}
}
