// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// nested is a ConfigMap with a field of lists in lists.
func (c *testCluster) nested(name string, depth int) string {
	return strings.Replace(c.configMap(name), `"data":{}`, `"deep":`+strings.Repeat("[", depth)+strings.Repeat("]", depth), 1)
}

// badManifests of a namespace. What an API server of the hub does not let through may still
// be sent by one that is not ours.
func (c *testCluster) badManifests() map[string]badManifest {
	ns := c.namespace
	object := func(apiVersion, kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q}}`, apiVersion, kind, name, ns)
	}
	const noType = "the server doesn't have a resource type "
	return map[string]badManifest{
		"a text":               {reason: "YAML need not be an object", manifest: `"text"`, want: "manifest is not a JSON object"},
		"a number":             {reason: "YAML need not be an object", manifest: `1e999`, want: "manifest is not a JSON object"},
		"a list":               {reason: "a list has no name", manifest: `[{"apiVersion":"v1","kind":"ConfigMap"}]`, want: "manifest is not a JSON object"},
		"nothing":              {reason: "an empty document is null", manifest: `null`, want: "manifest is not a JSON object"},
		"an empty object":      {reason: "says nothing", manifest: `{}`, want: "apiVersion and kind must be set in manifest"},
		"a kind of objects":    {reason: "it has no name either", manifest: `{"apiVersion":"v1","kind":"List","items":[]}`, want: "name must be set in manifest"},
		"no kind":              {reason: "nothing can be resolved", manifest: `{"apiVersion":"v1","metadata":{"name":"x"}}`, want: "apiVersion and kind must be set in manifest"},
		"no name":              {reason: "OCM's words", manifest: object("v1", "ConfigMap", ""), want: "name must be set in manifest"},
		"a generated name":     {reason: "OCM's words", manifest: strings.Replace(object("v1", "ConfigMap", "x"), `"name"`, `"generateName"`, 1), want: "generateName must not be set in manifest"},
		"numbers for names":    {reason: "no object has one", manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":7,"namespace":"x"}}`, want: "failed to decode object"},
		"a name that is text":  {reason: "no path may be made of it", manifest: object("v1", "ConfigMap", "../../x"), want: "is not a path segment"},
		"a space that is text": {reason: "no path may be made of it", manifest: strings.Replace(object("v1", "ConfigMap", "x"), ns, "../../x", 1), want: "is not a path segment"},
		"an unknown kind":      {reason: "OCM's words", manifest: object("v1", "Nonsense", "x"), want: noType + `"Nonsense"`},
		"an unknown version":   {reason: "the kind is served, but not so", manifest: object("v7", "ConfigMap", "x"), want: noType + `"ConfigMap" in version "v7"; it is served in v1`},
		"an old version":       {reason: "manifests outlive versions", manifest: object("apps/v1beta1", "Deployment", "x"), want: noType + `"Deployment" in version "apps/v1beta1"; it is served in apps/v1`},
		"an unknown group":     {reason: "OCM's words", manifest: object("no.such.group/v1", "Thing", "x"), want: noType + `"Thing"`},
		"no group at all":      {reason: "no path may be made of it", manifest: object("a/b/c", "Thing", "x"), want: "unexpected GroupVersion string"},
		"a duplicate":          {reason: "the first one counts", manifest: c.configMap("good", "k", "2"), want: "duplicate of manifest 0"},
		"no namespace":         {reason: "none is guessed", manifest: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, want: "namespace must be set"},
		"a missing namespace":  {reason: "the API server's words", manifest: strings.Replace(object("v1", "ConfigMap", "x"), ns, "missing-"+ns, 1), want: "not found"},
		"another namespace":    {reason: "the owner says which", manifest: strings.Replace(object("v1", "ConfigMap", "x"), ns, "kube-system", 1), want: "is not allowed by this cluster's agent"},
		"no namespaced kind":   {reason: "the owner says which namespaces", manifest: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`, want: "cluster-scoped manifests are not allowed"},
		"a wrong type": {
			reason: "the API server's words", manifest: strings.Replace(c.configMap("typed"), `"data":{}`, `"data":{"k":{}}`, 1),
			want: "cannot unmarshal object", ofWork: "failed to create typed patch object",
		},
		"a bad name": {reason: "the API server's words", manifest: object("v1", "ConfigMap", "A_B"), want: "is invalid"},
		"a secret": {
			reason:   "its content is told nobody",
			manifest: strings.TrimSuffix(object("v1", "Secret", "x"), "}") + `,"data":{"k":"hunter2 is no base64"}}`, want: "Failed to apply manifest: ",
		},
	}
}

// badManifest is one that cannot be applied, and what is told of it.
type badManifest struct {
	reason, manifest, want string
	// ofWork is what is told where it is not of a ManifestWork, if that differs.
	ofWork string
}

func TestBadManifestDoesNotBlockOthers(t *testing.T) {
	for label, ofWork := range map[string]bool{"of a ManifestWork": false, "of a Work": true} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h, func(cfg *Config) { cfg.Namespaces = []string{c.namespace, "missing-" + c.namespace} })
			bad := c.badManifests()
			names := slices.Sorted(maps.Keys(bad))
			manifests := []string{c.configMap("good", "k", "1")}
			for _, name := range names {
				manifests = append(manifests, bad[name].manifest)
			}
			manifests = append(manifests, c.configMap("last", "k", "1"))
			work := c.name("w")
			var s reportedStatus
			if ofWork {
				h.want(work, 1, manifests...)
				s = h.is(c, work, 1, conditionApplied, metav1.ConditionFalse)
			} else {
				h.ask(work, 1, wire.Work{}, manifests...)
				s = h.says(c, work, 1, conditionApplied, metav1.ConditionFalse)
			}
			for i, name := range names {
				b := bad[name]
				if ofWork && b.ofWork != "" {
					b.want = b.ofWork
				}
				if got := message(s, i+1); !strings.HasPrefix(got, "Failed to apply manifest: ") || !strings.Contains(got, b.want) || strings.Contains(got, "hunter2") {
					t.Errorf("%s: message %q, want %q in it: %s", name, got, b.want, b.reason)
				}
			}
			for _, i := range []int{0, len(manifests) - 1} {
				if !meta.IsStatusConditionTrue(s.Manifests[i].Conditions, conditionApplied) {
					t.Errorf("a good one is told as %q", message(s, i))
				}
			}
			if diff := cmp.Diff(map[string]map[string]string{"good": {"k": "1"}, "last": {"k": "1"}}, c.configMaps()); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if ofWork {
				h.want(work, 2)
				h.finalized(c, work)
			} else {
				h.drop(c, work, 1)
			}
		})
	}
}

// One object may have several versions; it is still one.
func TestSameObjectInAnotherVersionIsDuplicate(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	scaler := func(version string) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/%s","kind":"HorizontalPodAutoscaler","metadata":{"name":"x","namespace":%q},
			"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`, version, c.namespace)
	}
	work := c.name("w")
	h.ask(work, 1, wire.Work{}, scaler("v1"), scaler("v2"))
	h.waitForFailure(c, work, 1, 1, workv1.AppliedManifestFailed, "duplicate of manifest 0")
	h.drop(c, work, 1)
}

// An API server of the hub refuses more than 10 000 levels in all.
func TestDeeplyNestedManifestIsHarmless(t *testing.T) {
	for label, tc := range map[string]struct {
		reason   string
		strategy *workv1.UpdateStrategy
		want     metav1.ConditionStatus
	}{
		"updated":               {reason: "the API server drops a field that it does not know", want: metav1.ConditionTrue},
		"server-side":           {reason: "the API server refuses a field that it does not know", strategy: strategyOf(workv1.UpdateStrategyTypeServerSideApply), want: metav1.ConditionFalse},
		"server-side, by paths": {reason: "neither paths nor jq overflow; the API server refuses the field", strategy: ignoring(workv1.IgnoreField{JSONPaths: []string{".deep[0][0]"}, JSONPointers: []string{"/deep/0/0"}, JQPathExpressions: []string{".deep[0][0]"}}), want: metav1.ConditionFalse},
	} {
		t.Run(label, func(t *testing.T) {
			c, h := newCluster(t), newHub(t)
			c.startForOCM(h)
			w := wire.Work{Healthy: true}
			o := c.option(workv1.ManifestConfigOption{
				UpdateStrategy: tc.strategy,
				FeedbackRules:  []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "all", Path: "..nothing"}}}},
			})
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{o}
			work := c.name("w")
			began := time.Now()
			h.ask(work, 1, w, c.nested("deep", 9_900), c.configMap("beside"))
			h.says(c, work, 1, conditionApplied, tc.want)
			if took := time.Since(began); took > soon {
				t.Errorf("%s: it took %s", tc.reason, took)
			}
			if c.get("beside") == nil {
				t.Errorf("%s: the manifest beside it is missing", tc.reason)
			}
			h.drop(c, work, 1)
		})
	}
}

// ignoring is a server-side apply that leaves fields out.
func ignoring(fields ...workv1.IgnoreField) *workv1.UpdateStrategy {
	return &workv1.UpdateStrategy{
		Type:            workv1.UpdateStrategyTypeServerSideApply,
		ServerSideApply: &workv1.ServerSideApplyConfig{Force: true, IgnoreFields: fields},
	}
}

// What is nested deeper than any API server lets through, a hub that is not ours
// may still send.
func TestTooDeeplyNestedWorkDoesNotBlockOthers(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	bad, good := c.name("bad"), c.name("good")
	const here = `"here"`
	w := wire.Work{Generation: 1, HubHash: hubHashOne}
	for _, m := range []string{here, c.configMap("beside")} {
		w.Spec.Workload.Manifests = append(w.Spec.Workload.Manifests, manifestOfText(m))
	}
	body, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.Replace(body, []byte(here), []byte(c.nested("deep", 20_000)), 1)
	if err := h.sync.Source(spokeName, wire.KindWork).Put(resource.Resource{Key: manifestKey(bad), UID: "uid", Generation: 1, Body: body}); err != nil {
		t.Fatal(err)
	}
	h.applies(c, good, 1, c.configMap("good"))
	if c.get("beside") != nil {
		t.Error("a part was applied of what cannot be read")
	}
}
