// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestParseManifests(t *testing.T) {
	tests := map[string]struct {
		reason string
		raw    string
		want   error
	}{
		"good":              {reason: "names are all that is read", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`},
		"no kind":           {reason: "nothing can be resolved", raw: `{"apiVersion":"v1","metadata":{"name":"a"}}`, want: errNoKind},
		"no version":        {reason: "nothing can be resolved", raw: `{"kind":"ConfigMap","metadata":{"name":"a"}}`, want: errNoKind},
		"no name":           {reason: "an apply needs one", raw: `{"apiVersion":"v1","kind":"ConfigMap"}`, want: errNoName},
		"generated name":    {reason: "every apply would make another", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"a-"}}`, want: errGenerateName},
		"a list":            {reason: "not an object", raw: `[]`, want: errNotObject},
		"null":              {reason: "not an object", raw: `null`, want: errNotObject},
		"nothing":           {reason: "not an object", raw: ``, want: errNotObject},
		"cut off":           {reason: "not JSON", raw: `{"apiVersion":"v1"`, want: nil},
		"a path for a name": {reason: "it would address something else", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"../x"}}`, want: errBadName},
		"dots for a name":   {reason: "it would address something else", raw: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":".."}}`, want: errBadName},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := parseManifest(3, []byte(tc.raw))
			if name == "cut off" {
				if m.err == nil {
					t.Error(tc.reason)
				}
				return
			}
			if !errors.Is(m.err, tc.want) || m.ordinal != 3 {
				t.Errorf("%s: %+v, want error %v", tc.reason, m, tc.want)
			}
		})
	}
}

func TestConfigurationOmitsForeignFields(t *testing.T) {
	raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"x","resourceVersion":"1","creationTimestamp":null,
		"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"u"}]},
		"spec":{"big":12345678901234567890,"template":{"metadata":{"creationTimestamp":null,"name":"t"}}},"status":{"phase":"x"}}`
	at := target{objectID: objectID{Namespace: "b", Name: "a", Resource: "pods"}, Version: "v1", Kind: "Pod"}
	owners := []metav1.OwnerReference{{APIVersion: "g/v1", Kind: "AppliedWork", Name: "w", UID: "anchor"}}
	got, err := parseManifest(0, []byte(raw)).configuration(at, owners)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","ownerReferences":[` +
		`{"apiVersion":"g/v1","kind":"AppliedWork","name":"w","uid":"anchor"}]},` +
		`"spec":{"big":12345678901234567890,"template":{"metadata":{"name":"t"}}}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestHashIsOfAppliedContent(t *testing.T) {
	const without = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"note":"\u003c","template":{"metadata":{}}}}`
	tests := map[string]struct {
		reason string
		raw    string
		same   bool
	}{
		"a null":           {"it is not applied", strings.Replace(without, `{"name"`, `{"creationTimestamp":null,"name"`, 1), true},
		"a nested null":    {"a template's is not applied, either", strings.Replace(without, `"metadata":{}}`, `"metadata":{"creationTimestamp":null}}`, 1), true},
		"a time":           {"it is stripped from the object's own metadata alone", strings.Replace(without, `"metadata":{}}`, `"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}`, 1), false},
		"a null elsewhere": {"a field of that name is the kind's own", strings.Replace(without, `"note"`, `"creationTimestamp":null,"note"`, 1), false},
		"another null":     {"it takes a field away", strings.Replace(without, `"note"`, `"generation":null,"note"`, 1), false},
		"no JSON":          {"it differs, and says why elsewhere", `{"creationTimestamp":null`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if same := parseManifest(0, []byte(tc.raw)).hash == parseManifest(0, []byte(without)).hash; same != tc.same {
				t.Errorf("%s: same is %t", tc.reason, same)
			}
		})
	}
}

// resolveAny knows every kind but "Unknown"; kinds that begin with C are not namespaced.
func resolveAny(_ context.Context, k schema.GroupVersionKind) (resourceKind, error) {
	if k.Kind == "Unknown" {
		return resourceKind{}, &UnknownKindError{Kind: k}
	}
	if k.Kind == "Broken" {
		return resourceKind{}, errBoom
	}
	return resourceKind{resource: strings.ToLower(k.Kind) + "s", namespaced: !strings.HasPrefix(k.Kind, "Cluster")}, nil
}

func manifestOf(kind, namespace, name string) []byte {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}})
	if err != nil {
		panic(err)
	}
	return raw
}

func TestPlanRefusesAndSorts(t *testing.T) {
	list := [][]byte{
		manifestOf("Deployment", "a", "d"), manifestOf("Other", "a", "o"), manifestOf("Namespace", "a", "n"),
		manifestOf("Other", "a", "o"), manifestOf("Other", "z", "o"), manifestOf("ClusterX", "", "c"),
		manifestOf("Unknown", "a", "u"), manifestOf("Other", "", "o"),
	}
	var manifests []manifest
	for i, raw := range list {
		manifests = append(manifests, parseManifest(i, raw))
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
	m := parseManifest(0, manifestOf("ClusterX", "a", "x"))
	for _, allowed := range [][]string{nil, {"a"}} {
		steps := plan(t.Context(), []manifest{m}, resolveAny, allowed)
		if err := steps[0].err; !errors.Is(err, errNamespace) || !isPermanent(err) || len(applicableSteps(steps)) > 0 {
			t.Errorf("with namespaces %q allowed the error is %v: it is written for the whole cluster", allowed, err)
		}
		before := trackedObject{target: target{objectID: objectID{Resource: "clusterxs", Name: "x"}, Version: "v1", Kind: "ClusterX"}, uid: "u"}
		if gone := removedObjects(map[objectID]trackedObject{before.objectID: before}, steps); len(gone) > 0 {
			t.Errorf("what was applied before is removed: %v", gone)
		}
	}
}

func TestParseManifestReadsFieldNamesLikeAPIServer(t *testing.T) {
	for name, raw := range map[string]string{
		"another case":  `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a","Namespace":"b","Name":"y"},"Kind":"ClusterX","APIVersion":"v2"}`,
		"another K":     `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a"},"\u212aind":"ClusterX"}`,
		"another s":     `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a","name\u017fpace":"b"}}`,
		"other objects": `{"apiVersion":"v1","kind":"Other","metadata":{"name":"x","namespace":"a"},"Metadata":{"namespace":"b","name":"y"}}`,
	} {
		m := parseManifest(0, []byte(raw))
		if m.err != nil || m.gvk.Kind != "Other" || m.gvk.Version != "v1" || m.namespace != "a" || m.name != "x" {
			t.Errorf("%s: the manifest is %s %s/%s, %v", name, m.gvk, m.namespace, m.name, m.err)
		}
	}
}

func TestRemovedObjectsKeepsWhatMayBeNamed(t *testing.T) {
	old := trackedObject{target: target{objectID: objectID{Resource: "others", Namespace: "a", Name: "old"}, Version: "v1", Kind: "Other"}, uid: "u"}
	all := map[objectID]trackedObject{old.objectID: old}
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
			steps := plan(t.Context(), []manifest{parseManifest(0, tc.raw)}, resolveAny, nil)
			if got := removedObjects(all, steps); len(got) != tc.want {
				t.Errorf("%s: removed %v", tc.reason, got)
			}
		})
	}
	broken := old
	broken.Kind = "Broken"
	steps := plan(t.Context(), []manifest{parseManifest(0, manifestOf("Broken", "a", "old"))}, resolveAny, nil)
	if got := removedObjects(map[objectID]trackedObject{broken.objectID: broken}, steps); len(got) != 0 {
		t.Errorf("a fault on the way to discovery deletes %v", got)
	}
}

func TestDeletionWavesReverseApplyOrder(t *testing.T) {
	var list []trackedObject
	for _, kind := range []string{"Namespace", "Thing", "Deployment", "ConfigMap", "Secret"} {
		list = append(list, trackedObject{target: target{objectID: objectID{Resource: kind, Name: "x"}, Kind: kind}})
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

// FuzzManifest reads what a hub's user may write: no input may panic, and what is
// applied names the target and nothing else.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","ownerReferences":[]}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":null}`))
	f.Add([]byte(`{"metadata":{"name":"x","ownerReferences":7}} {}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := parseManifest(0, raw)
		if m.err != nil {
			return
		}
		at := target{objectID: objectID{Resource: "x", Namespace: "ns", Name: m.name}, Version: "v1", Kind: m.gvk.Kind}
		out, err := m.configuration(at, []metav1.OwnerReference{{UID: "anchor"}})
		if err != nil {
			return
		}
		var h header
		if err := json.Unmarshal(out, &h); err != nil {
			t.Fatalf("the configuration is no JSON: %v", err)
		}
		if h.Metadata.Name != m.name || h.Metadata.Namespace != "ns" {
			t.Errorf("the configuration names %s/%s", h.Metadata.Namespace, h.Metadata.Name)
		}
	})
}

// FuzzOwnershipOf checks that nothing is deleted that was not applied for the anchor,
// or that was there before.
func FuzzOwnershipOf(f *testing.F) {
	f.Add("u", "u", "anchor", "anchor", false)
	f.Add("u", "", "anchor", "other", true)
	f.Add("u", "v", "", "", false)
	f.Fuzz(func(t *testing.T, live, recorded, name, owner string, deleting bool) {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(live)}}
		if owner != "" {
			obj.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner)}}
		}
		if deleting {
			now := metav1.Now()
			obj.DeletionTimestamp = &now
		}
		applied := recorded != "" && recorded == live || name != "" && owner == name
		e := &Engine{inventory: newInventory(nil)}
		for _, before := range []bool{false, true} {
			got := e.ownershipOf(Multicluster(), obj, trackedObject{uid: types.UID(recorded), isAdopted: before}, &anchor{uid: types.UID(name)})
			if (got != ownershipForeign) != applied {
				t.Errorf("verdict %d of uid %q, recorded %q, anchor %q, owner %q", got, live, recorded, name, owner)
			}
			if got == ownedByWork && deleting {
				t.Error("an object that is going is deleted again")
			}
			if got == ownedByWork && (before || live != recorded) {
				t.Error("an object is deleted that we did not make")
			}
		}
	})
}

func TestDescribeError(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", nil)
	invalid.ErrStatus.Message = "data: Invalid value: hunter2"
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "data.b", Message: "hunter2"}, {Field: "data.a", Message: "hunter2"}}
	tests := map[string]struct {
		reason string
		err    error
		secret bool
		want   string
	}{
		"uids go": {
			reason: "they change without telling anything",
			err:    errors.New("precondition 6f2c1c0e-54c1-4f0e-9d1c-5a4c8e0f1a2b failed"), want: "precondition  failed",
		},
		"ports of our side go": {
			reason: "each attempt has its own",
			err:    errors.New("read tcp 10.0.0.1:4711->10.0.0.2:6443: reset"), want: "read tcp 10.0.0.2:6443: reset",
		},
		"control characters go":      {reason: "a condition is read by people", err: errors.New("a\x1b[31m\nb"), want: "a [31m b"},
		"a Secret's content stays":   {reason: "validation quotes values", err: fmt.Errorf("apply: %w", invalid), secret: true, want: "Invalid: data.a, data.b"},
		"long texts are cut":         {reason: "conditions are bounded", err: errors.New(strings.Repeat("é", maxMessage)), want: strings.Repeat("é", maxMessage/2) + "..."},
		"other texts are left alone": {reason: "they tell what is wrong", err: errBoom, want: "boom"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, describe(tc.err, tc.secret)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
