// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

// resolveAny knows every kind but "Unknown"; kinds that begin with C are not namespaced.
func resolveAny(_ context.Context, k schema.GroupVersionKind) (ResourceKind, error) {
	if k.Kind == "Unknown" {
		return ResourceKind{}, &manifest.UnknownKindError{Kind: k}
	}
	if k.Kind == "Broken" {
		return ResourceKind{}, errors.New("boom")
	}
	return ResourceKind{Resource: strings.ToLower(k.Kind) + "s", Namespaced: !strings.HasPrefix(k.Kind, "Cluster")}, nil
}

func TestPlanRefusesAndSorts(t *testing.T) {
	list := [][]byte{
		manifestOf("Deployment", "a", "d"), manifestOf("Other", "a", "o"), manifestOf("Namespace", "a", "n"),
		manifestOf("Other", "a", "o"), manifestOf("Other", "z", "o"), manifestOf("ClusterX", "", "c"),
		manifestOf("Unknown", "a", "u"), manifestOf("Other", "", "o"),
	}
	var manifests []manifest.Manifest
	for i, raw := range list {
		manifests = append(manifests, manifest.Parse(i, raw))
	}
	steps := Build(t.Context(), manifests, resolveAny, []string{"a"})
	var texts []string
	for _, s := range steps {
		text := ""
		if s.Error != nil {
			text = s.Error.Error()
		}
		texts = append(texts, text)
	}
	want := []string{
		"", "", "", "duplicate of manifest 1", `namespace "z" is not allowed by this cluster's agent`,
		"cluster-scoped manifests are not allowed by this cluster's agent",
		`failed to find gvr from restmapping: the server doesn't have a resource type "Unknown"`, errNoNamespace.Error(),
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	var order []string
	for _, s := range ApplicableSteps(steps) {
		order = append(order, s.Target.Kind)
	}
	if diff := cmp.Diff([]string{"Namespace", "Deployment", "Other"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPlanRefusesClusterScopedManifestWithNamespace(t *testing.T) {
	m := manifest.Parse(0, manifestOf("ClusterX", "a", "x"))
	for _, allowed := range [][]string{nil, {"a"}} {
		steps := Build(t.Context(), []manifest.Manifest{m}, resolveAny, allowed)
		if err := steps[0].Error; !errors.Is(err, ErrNamespace) || !IsPermanent(err) || len(ApplicableSteps(steps)) > 0 {
			t.Errorf("with namespaces %q allowed the error is %v: it is written for the whole cluster", allowed, err)
		}
		before := record.Object{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: "clusterxs", Name: "x"}, Version: "v1", Kind: "ClusterX"}, UID: "u"}
		if gone := RemovedObjects(map[manifest.ObjectID]record.Object{before.ObjectID: before}, steps); len(gone) > 0 {
			t.Errorf("what was applied before is removed: %v", gone)
		}
	}
}

func TestRemovedObjectsKeepsWhatMayBeNamed(t *testing.T) {
	old := record.Object{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: "others", Namespace: "a", Name: "old"}, Version: "v1", Kind: "Other"}, UID: "u"}
	all := map[manifest.ObjectID]record.Object{old.ObjectID: old}
	tests := map[string]struct {
		reason string
		raw    []byte
		want   int
	}{
		"another object":     {reason: "no manifest names it", raw: manifestOf("Other", "a", "new"), want: 1},
		"the object":         {reason: "it is wanted", raw: manifestOf("Other", "a", "old")},
		"discovery fails":    {reason: "the kind cannot be resolved now", raw: manifestOf("Broken", "a", "x"), want: 1},
		"nothing to resolve": {reason: "an unreadable manifest may name anything", raw: []byte(`{"kind":"Other"`)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			steps := Build(t.Context(), []manifest.Manifest{manifest.Parse(0, tc.raw)}, resolveAny, nil)
			if got := RemovedObjects(all, steps); len(got) != tc.want {
				t.Errorf("%s: removed %v", tc.reason, got)
			}
		})
	}
	broken := old
	broken.Kind = "Broken"
	steps := Build(t.Context(), []manifest.Manifest{manifest.Parse(0, manifestOf("Broken", "a", "old"))}, resolveAny, nil)
	if got := RemovedObjects(map[manifest.ObjectID]record.Object{broken.ObjectID: broken}, steps); len(got) != 0 {
		t.Errorf("a fault on the way to discovery deletes %v", got)
	}
}

func TestDeletionWavesReverseApplyOrder(t *testing.T) {
	var list []record.Object
	for _, kind := range []string{"Namespace", "Thing", "Deployment", "ConfigMap", "Secret"} {
		list = append(list, record.Object{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: kind, Name: "x"}, Kind: kind}})
	}
	var got []string
	for _, wave := range DeletionWaves(list) {
		var kinds []string
		for _, w := range wave {
			kinds = append(kinds, w.Kind)
		}
		got = append(got, strings.Join(kinds, "+"))
	}
	if diff := cmp.Diff([]string{"Thing", "Deployment", "ConfigMap+Secret", "Namespace"}, got); diff != "" {
		t.Errorf("waves (-want +got):\n%s", diff)
	}
}

func manifestOf(kind, namespace, name string) []byte {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}})
	if err != nil {
		panic(err)
	}
	return raw
}

func TestDriftReportNamesFieldsWithoutValues(t *testing.T) {
	var wanted, live []string
	for i := range 20 {
		wanted = append(wanted, fmt.Sprintf(`"key%02d":"c2VjcmV0"`, i))
		live = append(live, fmt.Sprintf(`"key%02d":"aGlkZGVu"`, i))
	}
	secret := func(data []string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n"},"data":{` + strings.Join(data, ",") + `}}`
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON([]byte(strings.Replace(secret(live), `"data"`, `"type":"Opaque","data"`, 1))); err != nil {
		t.Fatal(err)
	}
	s := Build(t.Context(), []manifest.Manifest{manifest.Parse(0, []byte(secret(wanted)))}, resolveAny, nil)[0]
	c := s.Comparison(t.Context()).Compare(obj)
	want := "Fields that differ from the manifest: data.key00, data.key01, data.key02, data.key03, data.key04, data.key05, data.key06, data.key07, and 12 more"
	if c.Status != metav1.ConditionTrue || c.Message != want {
		t.Errorf("%s: %s", c.Status, c.Message)
	}
	malformed := Build(t.Context(), []manifest.Manifest{manifest.Parse(0, []byte(strings.Replace(secret(nil), `"data":{`, `"data":["c2VjcmV0"],"stringData":{`, 1)))}, resolveAny, nil)[0]
	if c := malformed.Comparison(t.Context()).Compare(obj); c.Status != metav1.ConditionUnknown || strings.Contains(c.Message, "c2VjcmV0") {
		t.Errorf("%s: %s", c.Status, c.Message)
	}
}
