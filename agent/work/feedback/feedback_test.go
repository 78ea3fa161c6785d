// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	workv1 "open-cluster-management.io/api/work/v1"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("object: %v", err)
	}
	return u
}

func integer(name string, v int64) workv1.FeedbackValue {
	return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Integer, Integer: &v}}
}

func text(name, v string) workv1.FeedbackValue {
	return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.String, String: &v}}
}

func boolean(name string, v bool) workv1.FeedbackValue {
	return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.Boolean, Boolean: &v}}
}

func rawJSON(name, v string) workv1.FeedbackValue {
	return workv1.FeedbackValue{Name: name, Value: workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &v}}
}

func paths(p ...workv1.JsonPath) []workv1.FeedbackRule {
	return []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: p}}
}

func one(path string) []workv1.FeedbackRule {
	return paths(workv1.JsonPath{Name: "v", Path: path})
}

var known = []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}

const sample = `{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a"},"status":{
	"n":3,"f":1.5,"s":"up","b":true,"null":null,"o":{"z":1,"a":null,"h":"<&>"},
	"l":[{"k":"x","v":1},{"k":"y","v":2}],"n2":[1,2,3],"e":""}}`

// reads is one case: what rules read of an object.
type reads struct {
	reason  string
	object  string
	rules   []workv1.FeedbackRule
	options Options
	want    []workv1.FeedbackValue
	failure string
}

func (e reads) check(t *testing.T) {
	t.Helper()
	program := Compile(e.rules, e.options)
	for range 2 { // a program keeps nothing of an evaluation
		got, err := program.Eval(object(t, e.object))
		if diff := cmp.Diff(e.want, got); diff != "" {
			t.Errorf("values (%s): -want +got\n%s", e.reason, diff)
		}
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		if diff := cmp.Diff(e.failure, failure); diff != "" {
			t.Errorf("error (%s): -want +got\n%s", e.reason, diff)
		}
	}
}

func TestEvalReads(t *testing.T) {
	raw := Options{RawJSON: true}
	cases := map[string]reads{
		"the well-known values of a Deployment": {
			reason: "OCM's table", rules: known,
			object: `{"apiVersion":"apps/v1","kind":"Deployment","status":{"replicas":3,"readyReplicas":2,"availableReplicas":1}}`,
			want:   []workv1.FeedbackValue{integer("ReadyReplicas", 2), integer("Replicas", 3), integer("AvailableReplicas", 1)},
		},
		"the well-known values of a DaemonSet": {
			reason: "OCM's table", rules: known,
			object: `{"apiVersion":"apps/v1","kind":"DaemonSet","status":{"numberReady":1,"desiredNumberScheduled":2,"numberAvailable":0}}`,
			want:   []workv1.FeedbackValue{integer("NumberReady", 1), integer("DesiredNumberScheduled", 2), integer("NumberAvailable", 0)},
		},
		"the well-known values of a Job": {
			reason: "a condition's status is a string", rules: known,
			object: `{"apiVersion":"batch/v1","kind":"Job","status":{"succeeded":1,"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`,
			want:   []workv1.FeedbackValue{text("JobComplete", "True"), integer("JobSucceeded", 1)},
		},
		"the well-known values of a Pod": {
			reason: "OCM's table", rules: known,
			object: `{"apiVersion":"v1","kind":"Pod","status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`,
			want:   []workv1.FeedbackValue{text("PodReady", "False"), text("PodPhase", "Running")},
		},
		"a fresh Job has no well-known values": {
			reason: "a missing key is no value and no error", rules: known,
			object: `{"apiVersion":"batch/v1","kind":"Job","status":{}}`,
		},
		"an integer":           {reason: "int64", object: sample, rules: one(".status.n"), want: []workv1.FeedbackValue{integer("v", 3)}},
		"a string":             {reason: "string", object: sample, rules: one(".status.s"), want: []workv1.FeedbackValue{text("v", "up")}},
		"an empty string":      {reason: "is a value", object: sample, rules: one(".status.e"), want: []workv1.FeedbackValue{text("v", "")}},
		"a boolean":            {reason: "bool", object: sample, rules: one(".status.b"), want: []workv1.FeedbackValue{boolean("v", true)}},
		"null":                 {reason: "is no value", object: sample, rules: one(".status.null")},
		"null below null":      {reason: "is no value", object: sample, rules: one(".status.null.x")},
		"null, raw":            {reason: "is no value either", object: sample, rules: one(".status.null"), options: raw},
		"a missing key":        {reason: "is no value", object: sample, rules: one(".status.nothing.here")},
		"a float, raw":         {reason: "JSON", object: sample, rules: one(".status.f"), options: raw, want: []workv1.FeedbackValue{rawJSON("v", "1.5")}},
		"a structure, raw":     {reason: "compact, keys sorted, nulls kept", object: sample, rules: one(".status.o"), options: raw, want: []workv1.FeedbackValue{rawJSON("v", `{"a":null,"h":"\u003c\u0026\u003e","z":1}`)}},
		"a scalar, raw":        {reason: "keeps its own type", object: sample, rules: one(".status.n"), options: raw, want: []workv1.FeedbackValue{integer("v", 3)}},
		"several results":      {reason: "the first counts", object: sample, rules: one(".status.n2[*]"), want: []workv1.FeedbackValue{integer("v", 1)}},
		"several results, raw": {reason: "a list", object: sample, rules: one(".status.n2[*]"), options: raw, want: []workv1.FeedbackValue{rawJSON("v", "[1,2,3]")}},
		"a filter":             {reason: "JSONPath", object: sample, rules: one(`.status.l[?(@.k=="y")].v`), want: []workv1.FeedbackValue{integer("v", 2)}},
		"raw at the limit":     {reason: "still fits", object: sample, rules: one(".status.n2"), options: Options{RawJSON: true, MaxRawLength: 7}, want: []workv1.FeedbackValue{rawJSON("v", "[1,2,3]")}},
		"the right version": {
			reason: "reads", object: sample, rules: paths(workv1.JsonPath{Name: "v", Version: "v2", Path: ".status.n"}),
			want: []workv1.FeedbackValue{integer("v", 3)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}

func TestEvalFails(t *testing.T) {
	cases := map[string]reads{
		"no well-known values of other kinds": {
			reason: "the error is OCM's", rules: known, object: sample,
			failure: "cannot find the wellknown statuses for resource with gvk example.com/v2, Kind=Thing",
		},
		"a float":            {reason: "has no type", object: sample, rules: one(".status.f"), failure: "value of v: type float is not supported, only integer, string and boolean are"},
		"a structure":        {reason: "has no type", object: sample, rules: one(".status.o"), failure: "value of v: type object is not supported, only integer, string and boolean are"},
		"a list":             {reason: "has no type", object: sample, rules: one(".status.l"), failure: "value of v: type list is not supported, only integer, string and boolean are"},
		"raw over the limit": {reason: "is an error", object: sample, rules: one(".status.n2"), options: Options{RawJSON: true, MaxRawLength: 6}, failure: "value of v: raw JSON is too long: it exceeds the limit of 6 bytes"},
		"another version": {
			reason: "the error is OCM's", object: sample, rules: paths(workv1.JsonPath{Name: "v", Version: "v1", Path: ".status.n"}),
			failure: "version set in the path v is not matched for the related resource",
		},
		"a partial failure": {
			reason: "keeps the good values, and every error in order", object: sample,
			rules: paths(
				workv1.JsonPath{Name: "a", Path: ".status.o"}, workv1.JsonPath{Name: "b", Path: ".status.n"},
				workv1.JsonPath{Name: "c", Version: "v9", Path: ".status.n"}, workv1.JsonPath{Name: "d", Path: ".status.s"}),
			want:    []workv1.FeedbackValue{integer("b", 3), text("d", "up")},
			failure: "[value of a: type object is not supported, only integer, string and boolean are, version set in the path c is not matched for the related resource]",
		},
		"two values of one name": {
			reason: "would make the whole status invalid", object: sample, rules: append(one(".status.n"), one(".status.s")...),
			want: []workv1.FeedbackValue{integer("v", 3)}, failure: "value v is asked for more than once",
		},
		"a path that does not parse": {
			reason: "is said", object: sample, rules: one(".status[?(@.x"),
			failure: "failed to parse json path .status[?(@.x of v with error: unterminated filter",
		},
		"a path that is too long": {
			reason: "bounds the parser's recursion", object: sample, rules: one(strings.Repeat(".a", maxPathLength)),
			failure: "json path of v: path is longer than 2048 bytes",
		},
		"two recursive descents": {
			reason: "multiply", object: sample, rules: one("..a..b"),
			failure: "failed to parse json path ..a..b of v with error: more than 1 recursive descent",
		},
		"many unions": {
			reason: "multiply", object: sample, rules: one(".a" + strings.Repeat("[0,0]", 5)),
			failure: "failed to parse json path .a[0,0][0,0][0,0][0,0][0,0] of v with error: unions have more than 16 combinations",
		},
		"a rule type that is not known": {
			reason: "is said", object: sample, rules: []workv1.FeedbackRule{{Type: "Magic"}}, failure: `feedback rule type "Magic" is not known`,
		},
		"a value without a name": {
			reason: "would make the whole status invalid", object: sample, rules: paths(workv1.JsonPath{Path: ".status.n"}), failure: "a value has no name",
		},
		"a filter of a structure": {
			reason: "the error does not quote it", object: sample, rules: one(".status[?(@.n>1)]"),
			failure: "failed to find value for v with error: map[string]interface {} is not array or slice and cannot be filtered",
		},
		"a filter of a string": {
			reason: "the error does not quote it", object: sample, rules: one(".status.s[?(@.n>1)]"),
			failure: "failed to find value for v with error: string is not array or slice and cannot be filtered",
		},
		"an index beyond the list": {
			reason: "is kubectl's error", object: sample, rules: one(".status.n2[7]"),
			failure: "failed to find value for v with error: array index out of bounds: index 7, length 3",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { tc.check(t) })
	}
}

func TestCondition(t *testing.T) {
	_, failure := Compile(known, Options{}).Eval(object(t, sample))
	cases := map[string]struct {
		reason  string
		program *Program
		err     error
		want    metav1.Condition
	}{
		"no rules":  {reason: "is said", program: Compile(nil, Options{}), want: metav1.Condition{Type: ConditionType, Status: "True", Reason: "NoStatusFeedbackSynced"}},
		"no errors": {reason: "has no message", program: Compile(known, Options{}), want: metav1.Condition{Type: ConditionType, Status: "True", Reason: "StatusFeedbackSynced"}},
		"an error": {reason: "is the message", program: Compile(known, Options{}), err: failure, want: metav1.Condition{
			Type: ConditionType, Status: "False", Reason: "StatusFeedbackSyncFailed",
			Message: "Sync status feedback failed with error cannot find the wellknown statuses for resource with gvk example.com/v2, Kind=Thing",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.program.Condition(tc.err)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A value that cannot fit is not encoded: it may be as large as the object.
func TestEncodeRawDoesNotEncodeOversizedValue(t *testing.T) {
	list := make([]any, 1<<20)
	for i := range list {
		list[i] = "x"
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = encodeRaw(list, DefaultMaxRawLength) }); n > 20 {
		t.Errorf("encodeRaw made %v allocations", n)
	}
}

func TestEvalReturnsMapMembersInOrder(t *testing.T) {
	obj := object(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"d":"4","b":"2","a":"1","c":"3"}}`)
	program := Compile(paths(workv1.JsonPath{Name: "v", Path: ".data.*"}, workv1.JsonPath{Name: "w", Path: ".data.."}), Options{RawJSON: true})
	for range 20 {
		values, err := program.Eval(obj)
		all := `["1","2","3","4"]`
		if diff := cmp.Diff([]workv1.FeedbackValue{rawJSON("v", all), rawJSON("w", `[{"a":"1","b":"2","c":"3","d":"4"},"1","2","3","4"]`)}, values); diff != "" || err != nil {
			t.Fatalf("error %v, -want +got\n%s", err, diff)
		}
	}
}

// A status has the values of many manifests.
func TestEvalBoundsSizeOfAllValues(t *testing.T) {
	half := strings.Repeat("x", maxSize/2)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"a": half, "b": strings.Repeat("<", maxSize/8), "c": strings.Repeat("y", maxSize), "d": half[1:], "e": "x", "f": "y", "n": int64(3),
	}}
	var asked []workv1.JsonPath
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "n"} {
		asked = append(asked, workv1.JsonPath{Name: name, Path: "." + name})
	}
	program := Compile(paths(asked...), Options{})
	for range 2 { // every evaluation has the whole budget
		values, err := program.Eval(obj)
		want := []workv1.FeedbackValue{text("a", half), text("d", half[1:]), text("e", "x"), integer("n", 3)}
		if diff := cmp.Diff(want, values); diff != "" {
			t.Error("values differ")
		}
		over := func(name string) string {
			return "value of " + name + " exceeds the limit of 262144 bytes for all values of a manifest"
		}
		if want := "[" + over("b") + ", " + over("c") + ", " + over("f") + "]"; err == nil || err.Error() != want {
			t.Errorf("error %v", err)
		}
		if c := program.Condition(err); c.Status != metav1.ConditionFalse {
			t.Errorf("condition %v", c)
		}
	}
}

func FuzzEval(f *testing.F) {
	for _, p := range []string{".status.n", "..v", `.status.l[?(@.k=="y")].v`, "range .status.n2[*]", "}{", `.status['n','s']`, ".status.n2[-1:]", "", "range}{range}{range .status", "range .nothing}{[0]"} {
		f.Add(p, true)
	}
	f.Fuzz(func(t *testing.T, path string, enabled bool) {
		obj := object(t, sample)
		values, _ := Compile(one(path), Options{RawJSON: enabled}).Eval(obj)
		for _, v := range values {
			if v.Value.Type == workv1.JsonRaw && (!enabled || len(*v.Value.JsonRaw) > DefaultMaxRawLength) {
				t.Errorf("path %q: raw value %q", path, *v.Value.JsonRaw)
			}
		}
		if diff := cmp.Diff(object(t, sample), obj); diff != "" {
			t.Errorf("path %q changed the object: %s", path, diff)
		}
	})
}
