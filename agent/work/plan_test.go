// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/agent/work/manifest"
	"github.com/spokelet/spokelet/agent/work/record"
)

// resolveAny knows every kind but "Unknown"; kinds that begin with C are not namespaced.
func resolveAny(_ context.Context, k schema.GroupVersionKind) (resourceKind, error) {
	if k.Kind == "Unknown" {
		return resourceKind{}, &manifest.UnknownKindError{Kind: k}
	}
	if k.Kind == "Broken" {
		return resourceKind{}, errBoom
	}
	return resourceKind{resource: strings.ToLower(k.Kind) + "s", namespaced: !strings.HasPrefix(k.Kind, "Cluster")}, nil
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
	steps := plan(t.Context(), manifests, resolveAny, []string{"a"})
	var texts []string
	for _, s := range steps {
		text := ""
		if s.err != nil {
			text = s.err.Error()
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
	for _, s := range applicableSteps(steps) {
		order = append(order, s.at.Kind)
	}
	if diff := cmp.Diff([]string{"Namespace", "Deployment", "Other"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPlanRefusesClusterScopedManifestWithNamespace(t *testing.T) {
	m := manifest.Parse(0, manifestOf("ClusterX", "a", "x"))
	for _, allowed := range [][]string{nil, {"a"}} {
		steps := plan(t.Context(), []manifest.Manifest{m}, resolveAny, allowed)
		if err := steps[0].err; !errors.Is(err, errNamespace) || !isPermanent(err) || len(applicableSteps(steps)) > 0 {
			t.Errorf("with namespaces %q allowed the error is %v: it is written for the whole cluster", allowed, err)
		}
		before := record.Object{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: "clusterxs", Name: "x"}, Version: "v1", Kind: "ClusterX"}, UID: "u"}
		if gone := removedObjects(map[manifest.ObjectID]record.Object{before.ObjectID: before}, steps); len(gone) > 0 {
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
			steps := plan(t.Context(), []manifest.Manifest{manifest.Parse(0, tc.raw)}, resolveAny, nil)
			if got := removedObjects(all, steps); len(got) != tc.want {
				t.Errorf("%s: removed %v", tc.reason, got)
			}
		})
	}
	broken := old
	broken.Kind = "Broken"
	steps := plan(t.Context(), []manifest.Manifest{manifest.Parse(0, manifestOf("Broken", "a", "old"))}, resolveAny, nil)
	if got := removedObjects(map[manifest.ObjectID]record.Object{broken.ObjectID: broken}, steps); len(got) != 0 {
		t.Errorf("a fault on the way to discovery deletes %v", got)
	}
}

func TestDeletionWavesReverseApplyOrder(t *testing.T) {
	var list []record.Object
	for _, kind := range []string{"Namespace", "Thing", "Deployment", "ConfigMap", "Secret"} {
		list = append(list, record.Object{Target: manifest.Target{ObjectID: manifest.ObjectID{Resource: kind, Name: "x"}, Kind: kind}})
	}
	var got []string
	for _, wave := range deletionWaves(list) {
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
