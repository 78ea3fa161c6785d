// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/api/wire"
)

// replicated is the manifest of a Deployment that leaves much to the API server.
func (c *testCluster) replicated(name string, replicas int) string {
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":%d,
		"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},
		"spec":{"nodeSelector":{"no":"where"},"containers":[{"name":"a","image":"example.com/a","ports":[{"containerPort":80}]}]}}}}`, name, c.namespace, replicas)
}

// drifts says of each manifest whether it differs, and in what.
func (s reportedStatus) drifts() string {
	var out []string
	for _, m := range s.Manifests {
		c := meta.FindStatusCondition(m.Conditions, wire.ConditionDrifted)
		if c == nil {
			out = append(out, "unsaid")
			continue
		}
		_, fields, _ := strings.Cut(c.Message, ": ")
		out = append(out, strings.TrimSpace(c.Reason+" "+fields))
	}
	return strings.Join(out, "; ")
}

func TestReportedDriftIsNotRepaired(t *testing.T) {
	t.Parallel()
	eachDialect(t, func(t *testing.T, dialect string) {
		c, h := newCluster(t), newHub(t)
		c.startForOCM(h)
		c.canary(h)
		work := c.name("w")
		manifests := []string{c.configMap("cm", "k", "v"), c.replicated("d", 1)}
		drifts := func(want string) {
			t.Helper()
			h.waitForReport(c, dialect, work, "says "+want, func(s reportedStatus) bool { return s.drifts() == want })
		}
		patchDeployment := func(patch string) {
			t.Helper()
			deployments := c.kube.AppsV1().Deployments(c.namespace)
			if _, err := deployments.Patch(contextOf(t), "d", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
				t.Fatal(err)
			}
		}
		h.askFor(dialect, work, wire.Work{Generation: 1, ReportDrift: true}, manifests...)
		drifts("ObjectMissing; ObjectMissing")
		c.unchanged("it was never applied", "cm")
		if list := c.configMaps(); len(list) != 1 {
			t.Errorf("something was made: %v", list)
		}

		h.askFor(dialect, work, wire.Work{Generation: 1}, manifests...)
		h.waitForReport(c, dialect, work, "is applied", func(s reportedStatus) bool {
			return s.has("Available=True/ResourcesAvailable@1") && s.drifts() == "unsaid; unsaid"
		})
		h.askFor(dialect, work, wire.Work{Generation: 1, ReportDrift: true}, manifests...)
		drifts("NoDifference; NoDifference") // defaults are none
		c.patch("cm", `{"data":{"k":"edited"},"metadata":{"labels":{"theirs":"x"}}}`)
		drifts("FieldsDiffer data.k; NoDifference")
		patchDeployment(`{"spec":{"replicas":2}}`)
		drifts("FieldsDiffer data.k; FieldsDiffer spec.replicas")
		c.unchanged("it is compared", "cm")
		if cm := c.get("cm"); cm.Data["k"] != "edited" || len(cm.OwnerReferences) != 1 {
			t.Errorf("compared: %v, owned by %v", cm.Data, cm.OwnerReferences)
		}
		c.patch("cm", `{"data":{"k":"v"}}`)
		drifts("NoDifference; FieldsDiffer spec.replicas")
		if err := c.kube.CoreV1().ConfigMaps(c.namespace).Delete(t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		drifts("ObjectMissing; FieldsDiffer spec.replicas")

		h.askFor(dialect, work, wire.Work{Generation: 1}, manifests...)
		h.waitForReport(c, dialect, work, "is applied again", func(s reportedStatus) bool {
			return s.has("Available=True/ResourcesAvailable@1") && s.drifts() == "unsaid; unsaid" && meta.FindStatusCondition(s.Conditions, wire.ConditionDrifted) == nil
		})
		c.eventually("what strayed is repaired", func() bool {
			d, err := c.kube.AppsV1().Deployments(c.namespace).Get(t.Context(), "d", metav1.GetOptions{})
			return err == nil && *d.Spec.Replicas == 1 && c.get("cm") != nil
		})
		h.askFor(dialect, work, wire.Work{Generation: 2, Deleting: true, ReportDrift: true})
		h.waitForReport(c, dialect, work, "is finalized", func(s reportedStatus) bool { return s.Finalized })
		if c.get("cm") != nil {
			t.Error("it is deleted, and something of it is left")
		}
	})
}
