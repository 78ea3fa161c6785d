// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// A hub whose work was deleted at once may have another of that name before the
// spoke has nothing of the first.
func TestWorkReusesNameOfWorkBeingDeleted(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	h.ask(work, 1, wire.Work{}, c.configMap("held", "from", "first"), c.configMap("first"))
	h.says(c, work, 1, "Available", metav1.ConditionTrue)
	c.patch("held", `{"metadata":{"finalizers":["example.com/held"]}}`)
	h.ask(work, 1, wire.Work{Deleting: true})
	c.eventually("the first is being deleted", func() bool {
		held := c.get("held")
		return held != nil && held.DeletionTimestamp != nil && c.get("first") == nil
	})

	h.askAs("uid-second", work, 1, wire.Work{}, c.configMap("held", "from", "second"), c.configMap("second"))
	c.eventually("the second is applied", func() bool { return c.get("second") != nil })
	c.patch("held", `{"metadata":{"finalizers":null}}`)
	c.eventually("what was held is the second's", func() bool {
		held := c.get("held")
		return held != nil && held.DeletionTimestamp == nil && held.Data["from"] == "second"
	})
	c.eventually("the second is told of", func() bool { return h.said(work).uid == "uid-second" })
	if s := h.says(c, work, 1, "Available", metav1.ConditionTrue); s.uid != "uid-second" || s.Finalized {
		t.Errorf("said of %s, finalized %t", s.uid, s.Finalized)
	}
	h.askAs("uid-second", work, 1, wire.Work{Deleting: true})
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("held") != nil || c.get("second") != nil || c.applied(hubHashOne+"-"+work) != nil {
		t.Error("something of it is left")
	}
}

// A work that takes the name of one that is still going takes its objects over, too:
// they lose their reference to the anchor that goes, and get one to the next. Those that
// get none have to go as well.
func TestObjectsOfReplacedWorkAreDeleted(t *testing.T) {
	tests := map[string]struct {
		reason string
		second func(c *testCluster, h *testHub, a *testAgent, g *gate, work string)
	}{
		"the second has other manifests": {
			reason: "the first was being deleted with all of its objects",
			second: func(c *testCluster, h *testHub, _ *testAgent, _ *gate, work string) {
				h.askAs("uid-second", work, 1, wire.Work{}, c.configMap("second"))
				c.eventually("the second is applied", func() bool { return c.get("second") != nil })
			},
		},
		"the second is deleted before it is applied": {
			reason: "both were to be deleted",
			second: func(c *testCluster, h *testHub, a *testAgent, g *gate, work string) {
				g.armed.Store(true)
				h.askAs("uid-second", work, 1, wire.Work{}, c.configMap("first"), c.service("held"))
				g.meets(c.t) // at the second anchor
				h.askAs("uid-second", work, 1, wire.Work{Deleting: true})
				c.eventually("the agent knows", func() bool { return a.lookup(manifestKey(work)).currentSpec().IsDeleting })
				close(g.open)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			g := newGate(true, func(req *http.Request) bool {
				return req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/appliedmanifestworks")
			})
			a := c.startForOCM(h, g.through)
			work := c.name("w")
			h.ask(work, 1, wire.Work{}, c.configMap("first"), c.service("held"))
			h.says(c, work, 1, "Available", metav1.ConditionTrue)
			c.patchService("held", `{"metadata":{"finalizers":["example.com/held"]}}`)
			h.ask(work, 1, wire.Work{Deleting: true})
			c.eventually("the Service is being deleted, and the ConfigMap waits for it", func() bool {
				held, err := c.kube.CoreV1().Services(c.namespace).Get(t.Context(), "held", metav1.GetOptions{})
				return err == nil && held.DeletionTimestamp != nil
			})
			if c.get("first") == nil {
				t.Fatal("the ConfigMap did not wait")
			}
			tc.second(c, h, a, g, work)
			c.patchService("held", `{"metadata":{"finalizers":null}}`)
			c.eventually("the ConfigMap is gone: "+tc.reason, func() bool { return c.get("first") == nil })
			h.askAs("uid-second", work, 1, wire.Work{Deleting: true})
			c.eventually("finalized", func() bool { return h.said(work).Finalized })
			if left := c.configMaps(); len(left) != 0 || c.applied(hubHashOne+"-"+work) != nil {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// service is the manifest of a Service, which is deleted before a ConfigMap is.
func (c *testCluster) service(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":{"ports":[{"port":80}]}}`, name, c.namespace)
}

func (c *testCluster) patchService(name, patch string) {
	c.t.Helper()
	_, err := c.kube.CoreV1().Services(c.namespace).Patch(contextOf(c.t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestCompletionIsNotInheritedFromEarlierWork(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	work := c.name("w")
	spec := workv1.ManifestWorkSpec{ManifestConfigs: []workv1.ManifestConfigOption{c.option(workv1.ManifestConfigOption{
		ConditionRules: []workv1.ConditionRule{{
			Condition: "Complete", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{`object.data.state == "done"`},
		}},
	})}}
	h.ask(work, 1, wire.Work{Spec: spec}, c.configMap("first", "state", "done"))
	h.says(c, work, 1, "Complete", metav1.ConditionTrue)
	h.askAs("uid-second", work, 1, wire.Work{Spec: spec}, c.configMap("first", "state", "new"), c.configMap("second", "state", "new"))
	c.eventually("the second is applied", func() bool {
		first := c.get("first")
		return first != nil && first.Data["state"] == "new" && c.get("second") != nil
	})
	h.says(c, work, 1, "Complete", metav1.ConditionFalse)
}
