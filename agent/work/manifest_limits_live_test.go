// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel/resource"
)

// nested is a ConfigMap with a field of lists in lists.
func (c *cluster) nested(name string, depth int) string {
	return strings.Replace(c.configMap(name), `"data":{}`, `"deep":`+strings.Repeat("[", depth)+strings.Repeat("]", depth), 1)
}

func TestABadManifestStopsNoOtherOfItsManifestWork(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	ns := c.namespace
	object := func(apiVersion, kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q}}`, apiVersion, kind, name, ns)
	}
	const noType = "the server doesn't have a resource type "
	for label, tc := range map[string]struct{ reason, bad, want string }{
		"a text":              {reason: "YAML need not be an object", bad: `"text"`, want: "manifest is not a JSON object"},
		"a number":            {reason: "YAML need not be an object", bad: `1e999`, want: "manifest is not a JSON object"},
		"a list":              {reason: "a list has no name", bad: `[{"apiVersion":"v1","kind":"ConfigMap"}]`, want: "manifest is not a JSON object"},
		"nothing":             {reason: "an empty document is null", bad: `null`, want: "manifest is not a JSON object"},
		"an empty object":     {reason: "says nothing", bad: `{}`, want: "apiVersion and kind must be set in manifest"},
		"no name":             {reason: "OCM's words", bad: object("v1", "ConfigMap", ""), want: "name must be set in manifest"},
		"a generated name":    {reason: "OCM's words", bad: strings.Replace(object("v1", "ConfigMap", "x"), `"name"`, `"generateName"`, 1), want: "generateName must not be set in manifest"},
		"a name that is text": {reason: "no path may be made of it", bad: object("v1", "ConfigMap", "../../x"), want: "is not a path segment"},
		"an unknown kind":     {reason: "OCM's words", bad: object("v1", "Nonsense", "x"), want: noType + `"Nonsense"`},
		"an unknown version":  {reason: "the kind is served, but not so", bad: object("v7", "ConfigMap", "x"), want: noType + `"ConfigMap"`},
		"an unknown group":    {reason: "OCM's words", bad: object("no.such.group/v1", "Thing", "x"), want: noType + `"Thing"`},
		"no group at all":     {reason: "no path may be made of it", bad: object("a/b/c", "Thing", "x"), want: "unexpected GroupVersion string"},
		"a duplicate":         {reason: "the first one counts", bad: c.configMap("good", "k", "2"), want: "duplicate of manifest 0"},
		"no namespace":        {reason: "none is guessed", bad: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`, want: "namespace must be set"},
		"a missing namespace": {reason: "the API server's words", bad: strings.Replace(object("v1", "ConfigMap", "x"), ns, "missing-"+ns, 1), want: "not found"},
		"a wrong type":        {reason: "the API server's words", bad: strings.Replace(c.configMap("x"), `"data":{}`, `"data":{"k":{}}`, 1), want: "cannot unmarshal object"},
		"a bad name":          {reason: "the API server's words", bad: object("v1", "ConfigMap", "A_B"), want: "is invalid"},
		"a secret":            {reason: "its content is told nobody", bad: strings.TrimSuffix(object("v1", "Secret", "x"), "}") + `,"data":{"k":"hunter2 is no base64"}}`, want: "Failed to apply manifest: "},
	} {
		t.Run(label, func(t *testing.T) {
			work := c.name(strings.ReplaceAll(label, " ", "-"))
			h.ask(work, 1, wire.Work{}, c.configMap("good", "k", "1"), tc.bad, c.configMap("last", "k", "1"))
			s := h.tells(c, work, 1, 1, workv1.AppliedManifestFailed, tc.want)
			if got := message(s, 1); !strings.HasPrefix(got, "Failed to apply manifest: ") || strings.Contains(got, "hunter2") {
				t.Errorf("%s: message = %q", tc.reason, got)
			}
			if got := c.configMaps(); len(got) != 2 || got["good"]["k"] != "1" {
				t.Errorf("%s: objects are %v", tc.reason, got)
			}
			h.drop(c, work, 1)
		})
	}
}

// One object may have several versions; it is still one.
func TestTheSameObjectInAnotherVersionIsADuplicate(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
	scaler := func(version string) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/%s","kind":"HorizontalPodAutoscaler","metadata":{"name":"x","namespace":%q},
			"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`, version, c.namespace)
	}
	work := c.name("w")
	h.ask(work, 1, wire.Work{}, scaler("v1"), scaler("v2"))
	h.tells(c, work, 1, 1, workv1.AppliedManifestFailed, "duplicate of manifest 0")
	h.drop(c, work, 1)
}

// An API server of the hub refuses more than 10 000 levels in all.
func TestADeeplyNestedManifestHarmsNothing(t *testing.T) {
	c, h := newCluster(t), newHub(t)
	c.startForOCM(h)
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
			w := wire.Work{Healthy: true}
			o := c.option(workv1.ManifestConfigOption{
				UpdateStrategy: tc.strategy,
				FeedbackRules:  []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "all", Path: "..nothing"}}}},
			})
			w.Spec.ManifestConfigs = []workv1.ManifestConfigOption{o}
			work := c.name(strings.NewReplacer(" ", "-", ",", "").Replace(label))
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
func TestAWorkThatIsNestedTooDeeplyHarmsNoOther(t *testing.T) {
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
