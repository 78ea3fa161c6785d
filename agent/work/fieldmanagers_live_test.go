// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/agent/work/record"
	"github.com/spokelet/spokelet/api/wire"
)

// writtenAs says how a ManifestWork writes objects of a resource.
func (c *testCluster) writtenAs(resource string, u *workv1.UpdateStrategy) wire.Work {
	var w wire.Work
	w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: resource, Namespace: c.namespace, Name: "*"}, UpdateStrategy: u,
	}}
	return w
}

// inNamespace puts the test's namespace in a manifest.
func (c *testCluster) inNamespace(manifest string) string {
	return strings.ReplaceAll(manifest, "NAMESPACE", c.namespace)
}

// A work's Secret with stringData is owned key by key, whatever its strategy.
func TestStringDataDriftIsRepaired(t *testing.T) {
	t.Parallel()
	both := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"NAMESPACE"},"stringData":{"keep":"one","gone":"two"}}`
	forced := &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{Force: true}}
	kept := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"NAMESPACE"},"stringData":{"keep":"one"}}`
	for name, u := range map[string]*workv1.UpdateStrategy{"apply": forced, "Update": strategyOf(workv1.UpdateStrategyTypeUpdate)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			secrets, w := c.kube.CoreV1().Secrets(c.namespace), c.name("s")
			data := func() map[string]string {
				s, err := secrets.Get(t.Context(), "s", metav1.GetOptions{})
				if err != nil {
					return nil
				}
				out := map[string]string{}
				for k, v := range s.Data {
					out[k] = string(v)
				}
				return out
			}
			h.ask(w, 1, c.writtenAs("secrets", u), c.inNamespace(both))
			h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
			if _, err := secrets.Patch(t.Context(), "s", types.MergePatchType, []byte(`{"stringData":{"keep":"hacked"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
				t.Fatal(err)
			}
			c.eventually("an edit is undone", func() bool { return maps.Equal(data(), map[string]string{"keep": "one", "gone": "two"}) })
			h.ask(w, 2, c.writtenAs("secrets", u), c.inNamespace(kept))
			h.says(c, w, 2, conditionApplied, metav1.ConditionTrue)
			if diff := cmp.Diff(map[string]string{"keep": "one"}, data()); diff != "" {
				t.Errorf("a key that the manifest has no more (-want +got):\n%s", diff)
			}
		})
	}
}

// A manifest as "kubectl get -o yaml" printed it in another cluster names owners and
// revisions of that cluster.
func TestManifestOfAnotherClusterIsApplied(t *testing.T) {
	t.Parallel()
	exported := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"NAMESPACE","annotations":{"deployment.kubernetes.io/revision":"7"},
		"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"long-gone","uid":"11111111-2222-4333-8444-555555555555"}]},"data":{"k":"v"}}`
	for name, u := range map[string]*workv1.UpdateStrategy{"apply": strategyOf(workv1.UpdateStrategyTypeServerSideApply), "Update": strategyOf(workv1.UpdateStrategyTypeUpdate)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			w := c.name("x")
			h.ask(w, 1, c.writtenAs("configmaps", u), c.inNamespace(exported))
			told := h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
			live := c.get("x")
			if live == nil || len(live.OwnerReferences) != 1 || len(live.Annotations) != 0 {
				t.Fatalf("it became %+v", live)
			}
			message := told.Manifests[0].Conditions[0].Message
			for _, part := range []string{"metadata.ownerReferences", "metadata.annotations[deployment.kubernetes.io/revision]"} {
				if !strings.Contains(message, part) {
					t.Errorf("%s is not named: %s", part, message)
				}
			}
			h.ask(w, 2, wire.Work{Deleting: true})
			c.eventually("it goes with its work", func() bool { return h.said(w).Finalized && c.get("x") == nil })
		})
	}
}

// Whatever a work wrote before in another way is its own.
func TestChangedStrategyTakesOverFields(t *testing.T) {
	t.Parallel()
	apply := func(manager string) *workv1.UpdateStrategy {
		return &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{FieldManager: manager}}
	}
	for name, before := range map[string]*workv1.UpdateStrategy{
		"Update": strategyOf(workv1.UpdateStrategyTypeUpdate), "CreateOnly": strategyOf(workv1.UpdateStrategyTypeCreateOnly), "another manager": apply("work-agent-old"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			w := c.name("u")
			h.ask(w, 1, c.writtenAs("configmaps", before), c.configMap("u", "a", "1", "b", "1"))
			h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
			h.ask(w, 2, c.writtenAs("configmaps", apply("")), c.configMap("u", "a", "2", "b", "1"))
			h.says(c, w, 2, conditionApplied, metav1.ConditionTrue)
			if diff := cmp.Diff(map[string]string{"a": "2", "b": "1"}, c.get("u").Data); diff != "" {
				t.Errorf("a changed value (-want +got):\n%s", diff)
			}
			h.ask(w, 3, c.writtenAs("configmaps", apply("")), c.configMap("u", "a", "3"))
			h.says(c, w, 3, conditionApplied, metav1.ConditionTrue)
			if diff := cmp.Diff(map[string]string{"a": "3"}, c.get("u").Data); diff != "" {
				t.Errorf("a key that the manifest has no more (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodAndServiceAccountChangesAreAppliedOrReported(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	pod := func(image, command string) string {
		return c.inNamespace(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"NAMESPACE"},"spec":{"terminationGracePeriodSeconds":1,"schedulerName":"nobody",
			"containers":[{"name":"c","image":"` + image + `","command":["` + command + `"]}]}}`)
	}
	account := func(pull string) string {
		return c.inNamespace(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a","namespace":"NAMESPACE"},"automountServiceAccountToken":false,"imagePullSecrets":[{"name":"` + pull + `"}]}`)
	}
	w := c.name("p")
	h.ask(w, 1, wire.Work{}, pod("old", "sleep"), account("old"))
	h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
	h.ask(w, 2, wire.Work{}, pod("new", "sleep"), account("new"))
	h.says(c, w, 2, conditionApplied, metav1.ConditionTrue)
	p, err := c.kube.CoreV1().Pods(c.namespace).Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || p.Spec.Containers[0].Image != "new" {
		t.Errorf("image: %v, %v", p.Spec.Containers, err)
	}
	a, err := c.kube.CoreV1().ServiceAccounts(c.namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || !cmp.Equal(a.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "new"}}) || a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
		t.Errorf("account: %+v, %v", a, err)
	}
	h.ask(w, 3, wire.Work{}, pod("new", "other"), account("new"))
	told := h.says(c, w, 3, conditionApplied, metav1.ConditionFalse)
	if message := told.Manifests[0].Conditions[0].Message; !strings.Contains(message, "pod updates may not change fields") {
		t.Errorf("a command cannot be changed, and the message is %q", message)
	}
}

func TestMisspeltFieldIsNamed(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	w := c.name("m")
	h.ask(w, 1, wire.Work{}, c.inNamespace(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"NAMESPACE"},"dta":{"k":"v"}}`))
	told := h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
	if message := told.Manifests[0].Conditions[0].Message; !strings.Contains(message, `unknown field "dta"`) {
		t.Errorf("the message is %q", message)
	}
}

// The test plays the controllers that end a Job and delete it: those of the cluster need
// a pod that runs.
func TestFinishedJobRunsOnce(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	a := c.startForOCM(h)
	jobs, w := c.kube.BatchV1().Jobs(c.namespace), c.name("j")
	job := func(ttl string) string {
		return c.inNamespace(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"NAMESPACE"},"spec":{"suspend":true,"ttlSecondsAfterFinished":` + ttl + `,
			"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"none"}]}}}}`)
	}
	h.ask(w, 1, wire.Work{}, job("0"))
	h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
	done := `{"status":{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:00:01Z","succeeded":1,"conditions":[
		{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`
	if _, err := jobs.Patch(t.Context(), "j", types.MergePatchType, []byte(done), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	_ = jobs.Delete(t.Context(), "j", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	finished := func() bool {
		s := h.said(w)
		if len(s.Manifests) == 0 {
			return false
		}
		for _, cond := range s.Manifests[0].Conditions {
			if cond.Reason == "ResourceFinished" {
				return cond.Status == metav1.ConditionTrue
			}
		}
		return false
	}
	c.eventually("the work says that it has finished", finished)
	c.eventually("the record says so", func() bool {
		x := c.applied(hubHashOne + "-" + w)
		return x != nil && strings.Contains(x.Annotations[record.SupersededAnnotation], "ended:")
	})
	a.stop()
	c.startForOCM(h)
	c.eventually("the next agent says so, too", finished)
	p := &sharing{testCluster: c, hub: h}
	p.canary("after")
	if _, err := jobs.Get(t.Context(), "j", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there again: %v", err)
	}
	h.ask(w, 2, wire.Work{}, job("1"))
	c.eventually("another manifest runs", func() bool {
		_, err := jobs.Get(t.Context(), "j", metav1.GetOptions{})
		return err == nil
	})
}

func TestContentionIsReportedInCondition(t *testing.T) {
	t.Parallel()
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	w := c.name("f")
	h.ask(w, 1, wire.Work{}, c.configMap("f", "k", "ours"))
	h.says(c, w, 1, conditionApplied, metav1.ConditionTrue)
	configMaps := c.kube.CoreV1().ConfigMaps(c.namespace)
	contended := func() string {
		for _, cond := range h.said(w).Conditions {
			if cond.Type == conditionContended && cond.Status == metav1.ConditionTrue {
				return cond.Message
			}
		}
		return ""
	}
	c.eventually("the work says that somebody changes what it repairs", func() bool {
		if live := c.get("f"); live != nil && live.Data["k"] == "ours" {
			_, _ = configMaps.Patch(t.Context(), "f", types.MergePatchType, []byte(`{"data":{"k":"theirs"}}`), metav1.PatchOptions{FieldManager: "fighter"})
		}
		return contended() != ""
	})
	if got, want := contended(), `data.k is also written by "fighter"`; !strings.Contains(got, want) {
		t.Errorf("the message is %q", got)
	}
}
