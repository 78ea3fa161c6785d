// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/wire"
)

func groupNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.LabelCluster: "store1"}},
		Spec:       corev1.NodeSpec{ProviderID: virtualProvider + "id/" + name},
	}
}

func podOn(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "on-" + node, UID: "u"}, Spec: corev1.PodSpec{NodeName: node}}
}

// stuck is a pod of the cluster's own node that does not end by itself.
func stuck() *corev1.Pod {
	p := podOn("store1")
	p.Finalizers = []string{"example.com/runs"}
	return p
}

// release has a stuck pod end.
func (c *cli) release(p *corev1.Pod) {
	c.t.Helper()
	if err := c.hub.Patch(c.t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		c.t.Error(err)
	}
}

func TestDetachEndsThePodsOfAllNodesAtOnce(t *testing.T) {
	t.Run("A pod that is stuck keeps none of another group running", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), stuck(), groupNode("store1.gpu"), podOn("store1.gpu"))
		if code := c.run("detach", "store1", "--timeout", "50ms"); code != exitTimeout {
			t.Errorf("exit code %d: %s", code, c.err.String())
		}
		if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(podOn("store1.gpu")), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("the pod of the group runs on: %v", err)
		}
	})

	t.Run("A group that appears meanwhile is emptied, too", func(t *testing.T) {
		c := newCLI(t, cluster("store1"), stuck())
		c.watched = func() {
			for _, late := range []client.Object{groupNode("store1.late"), podOn("store1.late")} {
				if err := c.hub.Create(t.Context(), late); err != nil {
					t.Error(err)
				}
			}
			c.release(stuck())
		}
		if code := c.run("detach", "store1"); code != exitDone || c.exists("store1") {
			t.Errorf("exit code %d, record exists: %v: %s", code, c.exists("store1"), c.err.String())
		}
		if err := c.hub.Get(t.Context(), client.ObjectKeyFromObject(podOn("store1.late")), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("its pod runs on: %v", err)
		}
		var n corev1.Node
		if err := c.hub.Get(t.Context(), client.ObjectKey{Name: "store1.late"}, &n); err != nil || !n.Spec.Unschedulable {
			t.Errorf("it takes pods: %v", err)
		}
	})
}
