// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// A hub whose work was deleted at once may have another of that name before the
// spoke has nothing of the first.
func TestAWorkTakesTheNameOfOneThatIsStillGoing(t *testing.T) {
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
	if s := h.says(c, work, 1, "Available", metav1.ConditionTrue); s.uid != "uid-second" || s.Finalized {
		t.Errorf("said of %s, finalized %t", s.uid, s.Finalized)
	}
	h.askAs("uid-second", work, 1, wire.Work{Deleting: true})
	c.eventually("finalized", func() bool { return h.said(work).Finalized })
	if c.get("held") != nil || c.get("second") != nil || c.applied(hubHashOne+"-"+work) != nil {
		t.Error("something of it is left")
	}
}

func TestAWorkIsNotCompleteBecauseAnEarlierOneWas(t *testing.T) {
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
