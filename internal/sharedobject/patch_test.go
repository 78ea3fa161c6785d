// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedobject

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// applied is the object that a patch makes of another. The fake of client-go applies it
// with the library of the API server.
func applied(t testing.TB, to *unstructured.Unstructured, patch []byte) *unstructured.Unstructured {
	t.Helper()
	scheme := runtime.NewScheme()
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if err := tracker.Create(resource, to.DeepCopy(), to.GetNamespace()); err != nil {
		t.Fatal(err)
	}
	action := clienttesting.NewPatchAction(resource, to.GetNamespace(), to.GetName(), types.JSONPatchType, patch)
	_, got, err := clienttesting.ObjectReaction(tracker)(action)
	if err != nil {
		t.Fatalf("patch %s of %v: %v", patch, to.Object, err)
	}
	return got.(*unstructured.Unstructured)
}

// complete gives an object what all have, and what is of its side alone.
func complete(obj *unstructured.Unstructured) *unstructured.Unstructured {
	obj.SetAPIVersion("example.com/v1")
	obj.SetKind("Widget")
	obj.SetNamespace("ns")
	obj.SetName("n")
	obj.SetUID("u")
	obj.SetResourceVersion("5")
	obj.SetFinalizers([]string{"example.com/f"})
	unstructured.SetNestedSlice(obj.Object, []any{map[string]any{"uid": "o", "name": "owner"}}, "metadata", "ownerReferences")
	return obj
}

// unshared is what of an object is not shared, less its version.
func unshared(obj *unstructured.Unstructured) map[string]any {
	meta := maps.Clone(obj.Object[keyMetadata].(map[string]any))
	delete(meta, keyLabels)
	delete(meta, keyAnnotations)
	delete(meta, "resourceVersion")
	for key, value := range obj.GetAnnotations() {
		if private[key] {
			meta[key] = value
		}
	}
	return map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), keyMetadata: meta}
}

// patched is the object that both patches make of another, and fails unless each of them
// does what it says.
func patched(t testing.TB, obj *unstructured.Unstructured, to Content, subresource bool) *unstructured.Unstructured {
	t.Helper()
	from := Of(obj)
	target := Target{ResourceVersion: "7", Annotated: Annotated(obj), Subresource: subresource}
	got := obj
	apply := func(patch []byte, err error, want Content) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		before := got
		if same := encode(t, Of(before)) == encode(t, want); same != (patch == nil) {
			t.Fatalf("from %s to %s: the patch is %s", encode(t, Of(before)), encode(t, want), patch)
		}
		if patch == nil {
			return
		}
		got = applied(t, before, patch)
		if version := got.GetResourceVersion(); version != "7" {
			t.Errorf("an API server would compare the version %q", version)
		}
		if diff := cmp.Diff(want, Of(got)); diff != "" {
			t.Errorf("patch %s (-want +got):\n%s", patch, diff)
		}
		if diff := cmp.Diff(unshared(before), unshared(got)); diff != "" {
			t.Errorf("patch %s (-before +after):\n%s", patch, diff)
		}
	}
	patch, err := target.Patch(from, to)
	if !subresource {
		apply(patch, err, to)
		return got
	}
	apply(patch, err, to.WithStatus(from))
	patch, err = target.StatusPatch(Of(got), to)
	apply(patch, err, to)
	return got
}

func TestPatchTransformsContent(t *testing.T) {
	private := `{"metadata": {"annotations": {` + lastApplied + `}}}`
	tests := map[string]struct{ reason, object, to string }{
		"nothing":                         {reason: "there is no request to make", object: `{}`, to: `{}`},
		"the same":                        {reason: "there is no request to make", object: `{"metadata": {"labels": {"l": "1"}}, "spec": {"a": 1}, "status": {}}`, to: `{"metadata": {"labels": {"l": "1"}}, "spec": {"a": 1}, "status": {}}`},
		"the same but private":            {reason: "what is private is not looked at", object: private, to: `{}`},
		"a first label":                   {reason: "there is no map to add it to", object: `{}`, to: `{"metadata": {"labels": {"l": "1"}}}`},
		"a first label in an empty map":   {reason: "an empty map is none", object: `{"metadata": {"labels": {}}}`, to: `{"metadata": {"labels": {"l": "1"}}}`},
		"another label":                   {reason: "the map is there", object: `{"metadata": {"labels": {"l": "1"}}}`, to: `{"metadata": {"labels": {"l": "1", "m": ""}}}`},
		"another value":                   {reason: "it is replaced", object: `{"metadata": {"labels": {"l": "1"}}}`, to: `{"metadata": {"labels": {"l": "2"}}}`},
		"an empty value":                  {reason: "it is not missing", object: `{"metadata": {"labels": {"l": "1"}}}`, to: `{"metadata": {"labels": {"l": ""}}}`},
		"no label":                        {reason: "the last one goes", object: `{"metadata": {"labels": {"l": "1"}}}`, to: `{}`},
		"labels for others":               {reason: "all go, and others come", object: `{"metadata": {"labels": {"a": "1", "b": "2"}}}`, to: `{"metadata": {"labels": {"c": "1"}}}`},
		"labels for annotations":          {reason: "they are apart", object: `{"metadata": {"labels": {"a": "1"}}}`, to: `{"metadata": {"annotations": {"a": "1"}}}`},
		"a first annotation":              {reason: "there is no map to add it to", object: `{}`, to: `{"metadata": {"annotations": {"a": "1"}}}`},
		"a first one in an empty map":     {reason: "an empty map is none", object: `{"metadata": {"annotations": {}}}`, to: `{"metadata": {"annotations": {"a": "1"}}}`},
		"a first one beside a private":    {reason: "the private one stays", object: private, to: `{"metadata": {"annotations": {"a": "1", "b": "2"}}}`},
		"another one beside a private":    {reason: "the private one stays", object: `{"metadata": {"annotations": {"a": "1", ` + lastApplied + `}}}`, to: `{"metadata": {"annotations": {"b": "1"}}}`},
		"the last one beside a private":   {reason: "the private one stays", object: `{"metadata": {"annotations": {"a": "1", ` + lastApplied + `}}}`, to: `{}`},
		"the last annotation":             {reason: "it goes", object: `{"metadata": {"annotations": {"a": "1"}}}`, to: `{}`},
		"keys that pointers escape":       {reason: "/ and ~ are escaped", object: `{"metadata": {"labels": {"example.com/a": "1", "b~c": "1"}, "annotations": {"~1": "x", "/~0": "x"}}}`, to: `{"metadata": {"labels": {"example.com/a": "2", "b~1c/~0": "1"}, "annotations": {"~1": "y", "~01": "z", "a/b/c": ""}}}`},
		"fields that pointers escape":     {reason: "/ and ~ are escaped", object: `{"a/b": 1, "c~d": 1, "~1": 1}`, to: `{"a/b": 2, "~0": [], "/": {}}`},
		"a field without a name":          {reason: "its pointer is /", object: `{"": 1}`, to: `{"": 2}`},
		"fields that look like indices":   {reason: "an object is no list", object: `{"0": 1}`, to: `{"0": 2, "-": 3, "-1": 4}`},
		"characters that JSON escapes":    {reason: "they come back", object: `{"metadata": {"annotations": {"<": "&"}}, "<": "<>"}`, to: `{"metadata": {"annotations": {"<": "<&>", "日": "🚢"}}, "<": "\u2028\u0000", "ä": "\ufffd"}`},
		"a first spec":                    {reason: "it is added", object: `{}`, to: `{"spec": {"a": {"b": [1]}}}`},
		"no spec":                         {reason: "it is removed", object: `{"metadata": {"labels": {"l": "1"}}, "spec": {"a": 1}}`, to: `{"metadata": {"labels": {"l": "1"}}}`},
		"a spec that is null":             {reason: "null is a value", object: `{"spec": {"a": 1}}`, to: `{"spec": null}`},
		"a spec that was null":            {reason: "null is a value", object: `{"spec": null}`, to: `{"spec": {}}`},
		"a null that goes":                {reason: "null is a value", object: `{"spec": null}`, to: `{}`},
		"a null that comes":               {reason: "null is a value", object: `{}`, to: `{"spec": null}`},
		"a null that stays":               {reason: "there is no request to make", object: `{"spec": null}`, to: `{"spec": null}`},
		"a null within":                   {reason: "null is not missing", object: `{"spec": {"a": 1}}`, to: `{"spec": {"a": 1, "b": null}}`},
		"a null within that goes":         {reason: "null is not missing", object: `{"spec": {"a": null}}`, to: `{"spec": {}}`},
		"an empty list within":            {reason: "it is not null", object: `{"spec": {"a": null}}`, to: `{"spec": {"a": []}}`},
		"an empty map within":             {reason: "it is no empty list", object: `{"spec": {"a": []}}`, to: `{"spec": {"a": {}}}`},
		"values of no weight":             {reason: "they are not missing", object: `{"a": true, "b": 1, "c": "x"}`, to: `{"a": false, "b": 0, "c": ""}`},
		"a field within that goes":        {reason: "the field is replaced as a whole", object: `{"spec": {"a": 1, "b": 2}}`, to: `{"spec": {"b": 2}}`},
		"a list in another order":         {reason: "order counts", object: `{"spec": [1, 2]}`, to: `{"spec": [2, 1]}`},
		"large numbers":                   {reason: "they are no floats", object: `{"spec": 9007199254740992}`, to: `{"spec": 9007199254740993, "f": 0.1}`},
		"a first status":                  {reason: "it is written with the rest, or apart", object: `{"spec": 1}`, to: `{"spec": 1, "status": {"ready": true}}`},
		"another status and another spec": {reason: "it is written with the rest, or apart", object: `{"spec": 1, "status": {"a": 1}}`, to: `{"spec": 2, "status": {"b": 1}}`},
		"no status":                       {reason: "it is removed", object: `{"spec": 1, "status": {"a": 1}}`, to: `{"spec": 1}`},
		"a status that is null":           {reason: "null is a value", object: `{"status": {"a": 1}}`, to: `{"status": null}`},
		"all of it":                       {reason: "a patch does it at once", object: `{"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}, "spec": 1, "status": 1, "x": 1}`, to: `{"data": {}, "metadata": {"annotations": {"c": "1"}}, "spec": 2, "y": []}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, subresource := range []bool{false, true} {
				obj := complete(objectOf(t, tc.object))
				want := contentOf(t, tc.to)
				got := patched(t, obj, want, subresource)
				if diff := cmp.Diff(want, Of(got)); diff != "" {
					t.Errorf("%s, subresource %t (-want +got):\n%s", tc.reason, subresource, diff)
				}
			}
		})
	}
}

func TestPatchRefusesInvalidValues(t *testing.T) {
	to := Content{"spec": func() {}, "status": func() {}}
	if raw, err := (Target{}).Patch(Content{}, to); err == nil || raw != nil {
		t.Errorf("patch %s, %v", raw, err)
	}
	if raw, err := (Target{}).StatusPatch(Content{}, to); err == nil || raw != nil {
		t.Errorf("patch of the status %s, %v", raw, err)
	}
}
