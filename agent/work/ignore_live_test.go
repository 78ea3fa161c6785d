// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
)

// A nodeSelector is atomic: to apply one that is not ignored takes away what
// somebody else has in it, the ignored key too.
func TestDroppedNullWritesNothing(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	spec := workv1.ManifestWorkSpec{ManifestConfigs: []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "apps", Resource: "deployments", Namespace: c.namespace, Name: "d"},
		UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{
			Force: true, IgnoreFields: []workv1.IgnoreField{{
				Condition: workv1.IgnoreFieldsConditionOnSpokePresent, JSONPointers: []string{"/spec/template/spec/nodeSelector/zone"},
			}},
		}},
	}}}
	deployment := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"creationTimestamp":null,"name":"d","namespace":"` + c.namespace + `"},"spec":{"replicas":0,` +
		`"selector":{"matchLabels":{"app":"d"}},"template":{"metadata":{"creationTimestamp":null,"labels":{"app":"d"}},` +
		`"spec":{"containers":[{"image":"none","name":"c"}],"nodeSelector":{"disk":"ssd"}}}}}`
	work := c.name("w")
	h.ask(work, 1, wire.Work{Spec: spec}, deployment)
	h.says(c, work, 1, "Available", metav1.ConditionTrue)
	theirs := []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"zone":"theirs"}}}}}`)
	deployments := c.kube.AppsV1().Deployments(c.namespace)
	if _, err := deployments.Patch(t.Context(), "d", types.MergePatchType, theirs, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	before, err := deployments.Get(t.Context(), "d", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	h.ask(work, 2, wire.Work{Spec: spec}, strings.ReplaceAll(deployment, `"creationTimestamp":null,`, ""))
	h.says(c, work, 2, "Applied", metav1.ConditionTrue)
	after, err := deployments.Get(t.Context(), "d", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Generation != before.Generation || after.Spec.Template.Spec.NodeSelector["zone"] != "theirs" {
		t.Errorf("generation %d, want %d; nodeSelector %v", after.Generation, before.Generation, after.Spec.Template.Spec.NodeSelector)
	}

	h.ask(work, 3, wire.Work{Spec: spec}, strings.NewReplacer(`"creationTimestamp":null,`, "", "ssd", "hdd").Replace(deployment))
	h.says(c, work, 3, "Applied", metav1.ConditionTrue)
	c.eventually("what changes is written", func() bool {
		d, err := deployments.Get(t.Context(), "d", metav1.GetOptions{})
		return err == nil && d.Spec.Template.Spec.NodeSelector["disk"] == "hdd"
	})
}
