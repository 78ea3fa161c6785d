// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package ignorefields

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	workv1 "open-cluster-management.io/api/work/v1"
)

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return out
}

func encode(t testing.TB, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return string(out)
}

func present(f workv1.IgnoreField) []workv1.IgnoreField {
	f.Condition = workv1.IgnoreFieldsConditionOnSpokePresent
	return []workv1.IgnoreField{f}
}

func pathsOf(p ...string) []workv1.IgnoreField {
	return present(workv1.IgnoreField{JSONPaths: p})
}

func pointers(p ...string) []workv1.IgnoreField {
	return present(workv1.IgnoreField{JSONPointers: p})
}

func queries(p ...string) []workv1.IgnoreField {
	return present(workv1.IgnoreField{JQPathExpressions: p})
}

func TestPruneRemoves(t *testing.T) {
	cases := map[string]struct {
		reason  string
		doc     string
		ignored []workv1.IgnoreField
		want    string
	}{
		"a field by JSONPath":                {reason: "plain", doc: `{"a":{"b":1,"c":2}}`, ignored: pathsOf(".a.b"), want: `{"a":{"c":2}}`},
		"a field by JSONPath in braces":      {reason: "both forms are in use", doc: `{"a":{"b":1}}`, ignored: pathsOf("{.a.b}"), want: `{"a":{}}`},
		"an escaped field":                   {reason: "a dot in a key", doc: `{"a":{"x.y/z":1,"k":2}}`, ignored: pathsOf(`.a.x\.y/z`), want: `{"a":{"k":2}}`},
		"nothing where a path leads nowhere": {reason: "missing is ignored", doc: `{"a":1}`, ignored: pathsOf(".b.c", ".a.b", ".a[0]", ".a[*]"), want: `{"a":1}`},
		"an element by index":                {reason: "the list closes up", doc: `{"l":[1,2,3]}`, ignored: pathsOf(".l[1]"), want: `{"l":[1,3]}`},
		"the last element":                   {reason: "negative index", doc: `{"l":[1,2,3]}`, ignored: pathsOf(".l[-1]"), want: `{"l":[1,2]}`},
		"a slice":                            {reason: "half open", doc: `{"l":[0,1,2,3,4]}`, ignored: pathsOf(".l[1:4:2]"), want: `{"l":[0,2,4]}`},
		"a union of indices":                 {reason: "indices do not move", doc: `{"l":[0,1,2,3]}`, ignored: pathsOf(".l[0,2]"), want: `{"l":[1,3]}`},
		"a union of fields":                  {reason: "both go", doc: `{"a":1,"b":2,"c":3}`, ignored: pathsOf("['a','c']"), want: `{"b":2}`},
		"below a wildcard":                   {reason: "in each", doc: `{"l":[{"a":1,"b":2},{"a":3}]}`, ignored: pathsOf(".l[*].a"), want: `{"l":[{"b":2},{}]}`},
		"everywhere":                         {reason: "recursive descent", doc: `{"x":1,"a":{"x":{"x":1},"y":[{"x":2},3]}}`, ignored: pathsOf("..x"), want: `{"a":{"y":[{},3]}}`},
		"of the elements that a filter means": {
			reason: "the image of one container", doc: `{"c":[{"name":"a","image":"1"},{"name":"b","image":"2"}]}`,
			ignored: pathsOf(`.c[?(@.name=="b")].image`), want: `{"c":[{"image":"1","name":"a"},{"name":"b"}]}`,
		},
		"what a filter compares by number": {reason: "json.Number", doc: `{"c":[{"n":1},{"n":2.5},{"n":10},{"m":1}]}`, ignored: pathsOf(`.c[?(@.n>=2.5)]`), want: `{"c":[{"n":1},{"m":1}]}`},
		"what a filter finds to exist":     {reason: "no operator", doc: `{"c":[{"n":1},{"m":1}]}`, ignored: pathsOf(`.c[?(@.n)]`), want: `{"c":[{"m":1}]}`},

		"a field by pointer":               {reason: "plain", doc: `{"a":{"b":1,"c":2}}`, ignored: pointers("/a/b"), want: `{"a":{"c":2}}`},
		"escaped keys":                     {reason: "RFC 6901", doc: `{"a":{"m~n":1,"x/y":2,"~1":3}}`, ignored: pointers("/a/m~0n", "/a/x~1y", "/a/~01"), want: `{"a":{}}`},
		"an empty key":                     {reason: "RFC 6901", doc: `{"":1,"a":2}`, ignored: pointers("/"), want: `{"a":2}`},
		"an element by pointer":            {reason: "the list closes up", doc: `{"l":[1,2,3]}`, ignored: pointers("/l/1"), want: `{"l":[1,3]}`},
		"nothing where a pointer leads to": {reason: "missing is ignored", doc: `{"a":{"l":[1]}}`, ignored: pointers("/b/c", "/a/l/7", "/a/l/-", "/a/l/00", "/a/l/0/x"), want: `{"a":{"l":[1]}}`},

		"a field by jq": {reason: "plain", doc: `{"a":{"b":1,"c":2}}`, ignored: queries(".a.b"), want: `{"a":{"c":2}}`},
		"what jq selects": {
			reason: "the image of one container", doc: `{"c":[{"name":"a","image":"1"},{"name":"b","image":"2"}]}`,
			ignored: queries(`.c[] | select(.name == "b") | .image`), want: `{"c":[{"image":"1","name":"a"},{"name":"b"}]}`,
		},
		"an expression with a comment":  {reason: "does not swallow what encloses it", doc: `{"a":1,"b":2}`, ignored: queries(".a # but not b"), want: `{"b":2}`},
		"nothing that jq does not find": {reason: "missing is ignored", doc: `{"a":1}`, ignored: queries(".b.c", ".l[]?"), want: `{"a":1}`},
		"large numbers stay":            {reason: "jq knows float64 otherwise", doc: `{"a":1,"n":9007199254740993,"m":123456789012345678901234567890,"f":1.5}`, ignored: queries(".a"), want: `{"f":1.5,"m":123456789012345678901234567890,"n":9007199254740993}`},
		"an index far beyond the list":  {reason: "allocates nothing", doc: `{"l":[1]}`, ignored: queries(".l[536870000]"), want: `{"l":[1]}`},

		"all three forms":       {reason: "one after the other", doc: `{"a":1,"b":2,"c":3,"d":4}`, ignored: present(workv1.IgnoreField{JSONPaths: []string{".a"}, JSONPointers: []string{"/b"}, JQPathExpressions: []string{".c"}}), want: `{"d":4}`},
		"without a condition":   {reason: "the default is OnSpokePresent", doc: `{"a":1,"b":2}`, ignored: []workv1.IgnoreField{{JSONPaths: []string{".a"}}}, want: `{"b":2}`},
		"nothing OnSpokeChange": {reason: "those are applied", doc: `{"a":1}`, ignored: []workv1.IgnoreField{{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".a"}}}, want: `{"a":1}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields, err := Compile(tc.ignored)
			if err != nil {
				t.Fatalf("compile: %v", err)
			}
			manifest := decode(t, tc.doc)
			got, err := fields.Prune(t.Context(), manifest, true)
			if err != nil {
				t.Fatalf("prune: %v", err)
			}
			if diff := cmp.Diff(tc.want, encode(t, got.Object)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(decode(t, tc.doc), manifest); diff != "" {
				t.Errorf("the manifest changed: %s", diff)
			}
			whole, err := fields.Prune(t.Context(), manifest, false)
			if err != nil || !cmp.Equal(whole.Object, manifest) || whole.Hash != got.Hash {
				t.Errorf("an object that does not exist gets the whole manifest and the same hash: %v, %v", whole, err)
			}
		})
	}
}

func TestHash(t *testing.T) {
	hashOf := func(doc string, ignored []workv1.IgnoreField) string {
		fields, err := Compile(ignored)
		if err != nil {
			t.Fatalf("compile: %v", err)
		}
		got, err := fields.Prune(t.Context(), decode(t, doc), true)
		if err != nil {
			t.Fatalf("prune: %v", err)
		}
		return got.Hash
	}
	change := []workv1.IgnoreField{{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".a"}}}
	if got := hashOf(`{"b":2,"a":1}`, pathsOf(".a")); got != "1cabf324ea0a5d083f50f4dbb392fe2e" {
		t.Errorf("hash = %s: it lies in annotations and must not change", got)
	}
	if hashOf(`{"a":1,"b":2}`, pathsOf(".a")) != hashOf(`{"a":9,"b":2}`, pathsOf(".a")) {
		t.Error("an OnSpokePresent field is in the hash")
	}
	if hashOf(`{"a":1,"b":2}`, change) == hashOf(`{"a":9,"b":2}`, change) {
		t.Error("an OnSpokeChange field is not in the hash")
	}
	if got := hashOf(`{"a":1}`, nil); got != "" {
		t.Errorf("hash without ignoreFields = %q", got)
	}
}

func TestCompileRefuses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		ignored []workv1.IgnoreField
		want    string
	}{
		"a pointer without a slash":  {reason: "OCM's words", ignored: pointers("spec/replicas"), want: "JSON Pointer error in 'spec/replicas': pointer must begin with '/'"},
		"the whole document":         {reason: "there would be nothing to apply", ignored: pointers(""), want: "JSON Pointer error in '': pointer names the whole document"},
		"a bad escape":               {reason: "RFC 6901", ignored: pointers("/a~2"), want: "JSON Pointer error in '/a~2': '~' must be followed by '0' or '1'"},
		"a bad jq expression":        {reason: "OCM's words", ignored: queries(".a["), want: "JQ expression error in '.a[': unexpected EOF"},
		"an unknown variable":        {reason: "does not compile", ignored: queries(".[$x]"), want: "JQ expression error in '.[$x]': variable not defined: $x"},
		"leaving the parenthesis":    {reason: "an expression stands alone", ignored: queries(".a) | del(.b"), want: `JQ expression error in '.a) | del(.b': unexpected token ")"`},
		"OnSpokeChange, as well":     {reason: "what is wrong is said", ignored: []workv1.IgnoreField{{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPointers: []string{"x"}}}, want: "JSON Pointer error in 'x': pointer must begin with '/'"},
		"assignment":                 {reason: "no path", ignored: queries(".a = 1"), want: "JQ expression error in '.a = 1': operator = is not permitted in a path expression"},
		"what joins strings":         {reason: "memory", ignored: queries(".[.a+.b]"), want: "JQ expression error in '.[.a+.b]': operator + is not permitted in a path expression"},
		"interpolation":              {reason: "memory", ignored: queries(`.["\(.a)"]`), want: `JQ expression error in '.["\(.a)"]': string interpolation is not permitted in a path expression`},
		"reduce":                     {reason: "memory", ignored: queries("reduce .[] as $x (.; .)"), want: `JQ expression error in 'reduce .[] as $x (.; .)': "reduce .[] as $x (.; .)" is not permitted in a path expression`},
		"a definition":               {reason: "unbounded recursion", ignored: queries("def f: f; f"), want: "JQ expression error in 'def f: f; f': a function definition is not permitted in a path expression"},
		"the environment":            {reason: "is not the document", ignored: queries(".[env.X]"), want: "JQ expression error in '.[env.X]': function env is not permitted in a path expression"},
		"the environment's variable": {reason: "is not the document", ignored: queries(".[$ENV.X]"), want: "JQ expression error in '.[$ENV.X]': function $ENV is not permitted in a path expression"},
		"a function in an argument":  {reason: "at any depth", ignored: queries("select(if .a then [tojson] else . end)"), want: "JQ expression error in 'select(if .a then [tojson] else . end)': function tojson is not permitted in a path expression"},
		"a function in a pattern":    {reason: "at any depth", ignored: queries(`. as {(tojson): $x} | .a`), want: "JQ expression error in '. as {(tojson): $x} | .a': function tojson is not permitted in a path expression"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields, err := Compile(tc.ignored)
			if err == nil || fields != nil {
				t.Fatalf("compile: no error, %s", tc.reason)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCompileSkipsInvalidJSONPath(t *testing.T) {
	fields, err := Compile(pathsOf(".a[", ".", "..a..b", "range .a", ".b"))
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	got, err := fields.Prune(t.Context(), decode(t, `{"a":[1],"b":2}`), true)
	if diff := cmp.Diff(`{"a":[1]}`, encode(t, got.Object)); err != nil || diff != "" {
		t.Errorf("the good path still counts: %v, %s", err, diff)
	}
}

func TestPruneBoundsQueries(t *testing.T) {
	cases := map[string]struct{ reason, expression, want string }{
		"one that loops":            {"steps end it", "range(1e12) | empty", errSteps.Error()},
		"one that recurses forever": {"steps end it", "recurse(.)", errSteps.Error()},
		"one that is no path":       {"is said without the document's values", "1 - .data", "cannot subtract"},
		"one that deletes all":      {"leaves nothing to apply", ".", errResult.Error()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields, err := Compile(queries(tc.expression))
			if err != nil {
				t.Fatalf("compile: %v", err)
			}
			_, err = fields.Prune(t.Context(), decode(t, `{"data":"password"}`), true)
			var failure *ExpressionError
			if !errors.As(err, &failure) || strings.Contains(err.Error(), "password") {
				t.Fatalf("prune: %v", err)
			}
			// On a slow machine the time may end before the steps do.
			if failure.Err != errTime && !strings.HasPrefix(failure.Err.Error(), tc.want) { //nolint:errorlint // the very error
				t.Errorf("%s: got %v, want %s", tc.reason, failure.Err, tc.want)
			}
		})
	}
}

const sample = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","labels":{"x.y/z":"1"}},
	"spec":{"replicas":3,"l":[1,[2,3],{"k":null}],"template":{"containers":[{"name":"a","ports":[{"p":1},{"p":2}]},{"name":"b"}]}}}`

func FuzzPrune(f *testing.F) {
	for _, s := range []string{".spec.replicas", ".spec.l[0,1]", "..k", `.spec..[?(@.name=="a")].ports[-1:]`, "{.spec}{.metadata}"} {
		f.Add(s, "", "")
	}
	for _, s := range []string{"/spec/l/1/0", "/spec/l/2/k", "/metadata/labels/x.y~1z", "/spec/l/-"} {
		f.Add("", s, "")
	}
	for _, s := range []string{".spec.l[]", "..|select(type==\"null\")?", ".spec.l[1:]", ".. as [$a] | .spec", "first(.spec[])"} {
		f.Add("", "", s)
	}
	f.Fuzz(func(t *testing.T, path, pointer, query string) {
		entry := workv1.IgnoreField{JSONPaths: []string{path}}
		if pointer != "" {
			entry.JSONPointers = []string{pointer}
		}
		if query != "" {
			entry.JQPathExpressions = []string{query}
		}
		fields, err := Compile(present(entry))
		if err != nil {
			return
		}
		manifest := decode(t, sample)
		got, err := fields.Prune(t.Context(), manifest, true)
		if diff := cmp.Diff(decode(t, sample), manifest); diff != "" {
			t.Errorf("the manifest changed: %s", diff)
		}
		if err != nil {
			return
		}
		if strings.Contains(encode(t, got.Object), "{}") && got.Hash == "" {
			t.Error("no hash")
		}
		if len(encode(t, got.Object)) > len(encode(t, manifest)) {
			t.Errorf("pruning added something: %s", encode(t, got.Object))
		}
	})
}
