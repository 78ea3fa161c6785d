// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedobject

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// lastApplied is what kubectl remembers.
const lastApplied = `"kubectl.kubernetes.io/last-applied-configuration": "{}\n"`

// objectOf reads an object as client-go does.
func objectOf(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := map[string]any{}
	if err := utiljson.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &unstructured.Unstructured{Object: obj}
}

func contentOf(t testing.TB, text string) Content {
	t.Helper()
	c, err := Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

func encode(t testing.TB, c Content) string {
	t.Helper()
	raw, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestOfSelectsSharedFields(t *testing.T) {
	tests := map[string]struct{ reason, object, want string }{
		"identity": {
			reason: "each side has its own",
			object: `{"apiVersion": "v", "kind": "K", "metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 2}}`,
			want:   `{}`,
		},
		"what is tied to one side": {
			reason: "the other side lacks its owners and controllers",
			object: `{"metadata": {"finalizers": ["f"], "ownerReferences": [{"uid": "u"}], "managedFields": [{}], "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"a": 1}}`,
			want:   `{"spec": {"a": 1}}`,
		},
		"labels and annotations": {
			reason: "they say what an object is",
			object: `{"metadata": {"name": "n", "labels": {"l": "1"}, "annotations": {"a": "2", "b": ""}}}`,
			want:   `{"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2", "b": ""}}}`,
		},
		"what kubectl remembers": {
			reason: "it was applied on one side",
			object: `{"metadata": {"annotations": {"a": "1", ` + lastApplied + `}}}`,
			want:   `{"metadata": {"annotations": {"a": "1"}}}`,
		},
		"only what kubectl remembers": {
			reason: "without annotations there is no member",
			object: `{"metadata": {"labels": {"l": "1"}, "annotations": {` + lastApplied + `}}}`,
			want:   `{"metadata": {"labels": {"l": "1"}}}`,
		},
		"a label of that name": {
			reason: "kubectl does not remember in labels",
			object: `{"metadata": {"labels": {"kubectl.kubernetes.io/last-applied-configuration": "x"}}}`,
			want:   `{"metadata": {"labels": {"kubectl.kubernetes.io/last-applied-configuration": "x"}}}`,
		},
		"empty maps":  {reason: "they are the same as none", object: `{"metadata": {"labels": {}, "annotations": {}}}`, want: `{}`},
		"no metadata": {reason: "nothing is to be made up", object: `{"spec": {}}`, want: `{"spec": {}}`},
		"all fields": {
			reason: "fields have any name and any value",
			object: `{"apiVersion": "v", "kind": "K", "metadata": {}, "spec": null, "status": {"ready": false}, "data": ["x"], "immutable": true, "": 0}`,
			want:   `{"spec": null, "status": {"ready": false}, "data": ["x"], "immutable": true, "": 0}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := objectOf(t, tc.object)
			before := obj.DeepCopy()
			if diff := cmp.Diff(contentOf(t, tc.want), Of(obj)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestEncodeIsDeterministic(t *testing.T) {
	keys := strings.Split("z y x w v u t s r q p o n m l k j i h g f e d c b a", " ")
	forward, backward := Content{}, Content{}
	for i := range keys {
		forward[keys[i]] = map[string]any{"b": int64(1), "a": []any{nil, true}}
		backward[keys[len(keys)-1-i]] = map[string]any{"a": []any{nil, true}, "b": int64(1)}
	}
	want := encode(t, forward)
	for range 20 {
		if got := encode(t, backward); got != want {
			t.Fatalf("want %s, got %s", want, got)
		}
	}
	if Version([]byte(want)) != Version([]byte(encode(t, backward))) {
		t.Error("the versions differ")
	}
}

func TestContentRoundTrip(t *testing.T) {
	tests := map[string]struct {
		reason string
		value  any
	}{
		"a small integer":       {reason: "API servers tell 1 from 1.5", value: int64(1)},
		"the largest integer":   {reason: "it is no float", value: int64(math.MaxInt64)},
		"the smallest integer":  {reason: "it is no float", value: int64(math.MinInt64)},
		"beyond 2^53":           {reason: "a float would lose the last digit", value: int64(1<<53 + 1)},
		"a float":               {reason: "its digits stay", value: 0.1},
		"a large float":         {reason: "it has an exponent", value: 1e300},
		"beyond integers":       {reason: "it fits no int64", value: 1e20},
		"null":                  {reason: "a schema may take it", value: nil},
		"an empty map":          {reason: "it is not null", value: map[string]any{}},
		"an empty list":         {reason: "it is not null", value: []any{}},
		"booleans":              {reason: "false is not missing", value: []any{true, false}},
		"what HTML has":         {reason: "JSON in Go escapes it", value: "a<b>&c"},
		"separators of lines":   {reason: "JSON in Go escapes them", value: "\u2028\u2029"},
		"text":                  {reason: "it is of all scripts", value: "日本 ä 🚢 \u0000 \"\\/"},
		"what is no character":  {reason: "it is valid UTF-8", value: "\ufffd\ufffe"},
		"nulls in a list":       {reason: "their places count", value: []any{nil, int64(0), nil}},
		"keys of many kinds":    {reason: "none is special", value: map[string]any{"": "", "/": "", "~0": "", "<": nil, "apiVersion": "x", "metadata": "y"}},
		"maps in lists in maps": {reason: "integers stay at any depth", value: map[string]any{"a": []any{map[string]any{"b": int64(1), "c": 1.5}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := Content{"spec": tc.value, "metadata": map[string]any{"labels": map[string]any{"l": "<ä>"}}}
			raw, err := Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(raw)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestEncodeRefusesInvalidValues(t *testing.T) {
	for name, value := range map[string]any{"a float": math.NaN(), "a function": func() {}} {
		if raw, err := Encode(Content{"spec": value}); !errors.Is(err, ErrInvalid) || raw != nil {
			t.Errorf("%s: %s, %v", name, raw, err)
		}
	}
}

func TestDecodeRefusesInvalidContent(t *testing.T) {
	tests := map[string]struct{ reason, raw string }{
		"nothing":              {reason: "an absent object has no content", raw: ``},
		"null":                 {reason: "an absent object has no content", raw: `null`},
		"a list":               {reason: "an object has members", raw: `[]`},
		"a text":               {reason: "an object has members", raw: `"{}"`},
		"half of one":          {reason: "it was cut", raw: `{"spec": {`},
		"two":                  {reason: "one of them is not what was meant", raw: `{"spec": {}}{}`},
		"a number beyond all":  {reason: "no API server takes it", raw: `{"spec": 1e400}`},
		"an endless nesting":   {reason: "no API server takes it", raw: strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20000)},
		"an API version":       {reason: "both sides agree on it", raw: `{"apiVersion": "v1"}`},
		"a kind":               {reason: "both sides agree on it", raw: `{"kind": "Secret"}`},
		"an empty kind":        {reason: "it would be written", raw: `{"kind": null}`},
		"metadata of null":     {reason: "without labels there is no member", raw: `{"metadata": null}`},
		"empty metadata":       {reason: "without labels there is no member", raw: `{"metadata": {}}`},
		"a list for metadata":  {reason: "an object has none such", raw: `{"metadata": []}`},
		"finalizers":           {reason: "they would hold the object for ever", raw: `{"metadata": {"labels": {"l": "1"}, "finalizers": ["f"]}}`},
		"owners":               {reason: "garbage collection would delete it", raw: `{"metadata": {"ownerReferences": [{"uid": "u"}]}}`},
		"a name":               {reason: "it is another object's", raw: `{"metadata": {"name": "n"}}`},
		"a namespace":          {reason: "it is another object's", raw: `{"metadata": {"namespace": "kube-system"}}`},
		"a version":            {reason: "it is one side's", raw: `{"metadata": {"resourceVersion": "1"}}`},
		"a nameless member":    {reason: "an object has none such", raw: `{"metadata": {"": {"l": "1"}}}`},
		"no labels":            {reason: "without labels there is no member", raw: `{"metadata": {"labels": {}}}`},
		"no annotations":       {reason: "without annotations there is no member", raw: `{"metadata": {"labels": {"l": "1"}, "annotations": {}}}`},
		"labels of null":       {reason: "without labels there is no member", raw: `{"metadata": {"labels": null}}`},
		"labels in a list":     {reason: "no API server takes them", raw: `{"metadata": {"labels": ["l"]}}`},
		"a label of null":      {reason: "no API server takes it", raw: `{"metadata": {"labels": {"l": null}}}`},
		"a numeric label":      {reason: "no API server takes it", raw: `{"metadata": {"labels": {"l": 1}}}`},
		"a boolean annotation": {reason: "no API server takes it", raw: `{"metadata": {"annotations": {"a": "1", "b": true}}}`},
		"what kubectl says":    {reason: "it was applied on one side", raw: `{"metadata": {"annotations": {"a": "1", ` + lastApplied + `}}}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := Decode([]byte(tc.raw)); !errors.Is(err, ErrInvalid) || got != nil {
				t.Errorf("%s: %v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestVersionDependsOnContent(t *testing.T) {
	one := Version([]byte(`{}`))
	if one != "44136fa355b3678a1146ad16f7e8649e" {
		t.Errorf("version %q is not the first half of the SHA-256: records of earlier agents have that", one)
	}
	if Version([]byte(`{"spec":1}`)) == one {
		t.Error("two contents have the same version")
	}
}

func TestObjectHasContentAndName(t *testing.T) {
	for _, text := range []string{
		`{}`,
		`{"metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}}, "spec": {"a": [1, 1.5, null]}, "status": {}}`,
		`{"metadata": {"annotations": {"a": "2"}}, "data": null}`,
	} {
		c := contentOf(t, text)
		obj := c.Object("example.com/v1", "Widget", "ns", "n")
		if got := obj.GetAPIVersion() + " " + obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName(); got != "example.com/v1 Widget ns/n" {
			t.Errorf("the object is %s", got)
		}
		if diff := cmp.Diff(c, Of(obj)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		obj.SetFinalizers([]string{"f"})
		obj.SetLabels(map[string]string{"l": "2"})
		if encode(t, c) != encode(t, contentOf(t, text)) {
			t.Errorf("%s: the content was changed with the object", text)
		}
	}
}
