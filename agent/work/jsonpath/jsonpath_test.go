// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonpath

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

const sample = `{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a"},"status":{
	"n":3,"f":1.5,"s":"up","b":true,"null":null,"o":{"z":1,"a":null,"h":"<&>"},
	"l":[{"k":"x","v":1},{"k":"y","v":2}],"n2":[1,2,3],"e":""}}`

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatalf("object: %v", err)
	}
	return u.Object
}

// findKubectl returns what kubectl finds.
func findKubectl(object map[string]any, path string) ([]any, error) {
	kubectl := jsonpath.New("v").AllowMissingKeys(true)
	if err := kubectl.Parse("{" + path + "}"); err != nil {
		return nil, err
	}
	results, err := kubectl.FindResults(object)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	var values []any
	for _, v := range results[0] {
		values = append(values, v.Interface())
	}
	return values, nil
}

func TestFindReturnsWhatKubectlFinds(t *testing.T) {
	for _, text := range []string{
		".status.n", ".status.nothing", ".status.null.x", ".status.n2[*]", ".status.n2[1]", ".status.n2[-1]", ".status.n2[-1:]", ".status.n2[0:2]", ".status.n2[::2]",
		".status.n2[1:1]", ".status.n2[7]", ".status.n2[2:1]", ".status.n2[0:9]", ".status.n2[::0]", ".status.o[0]", ".status.null[0]", ".status['n','s']", ".status.l[*].k", ".status.l[*]['k','v']",
		`.status.l[?(@.k=="y")].v`, `.status.l[?(@.v>1)].k`, `.status.l[?(@.v<=1)].k`, `.status.l[?(@.v!=1)].k`, `.status.l[?(@.nothing)]`, `.status.l[?(@.k)].v`, `.status.l[?(@.k==1)]`,
		`.status.l[?(@.nothing=="x")]`, `.status.l[?(@['k','v']==1)]`, "..k", "..h", "..nothing", ".status.l..v", ".status.l..", "..l[?(@.v==2)].k", ".status.l[0:9223372036854775807:9223372036854775807]",
		"odd", "1.5", "true", "", "@", "$.status.n",
	} {
		t.Run(text, func(t *testing.T) {
			want, failure := findKubectl(object(t, sample), text)
			var got []any
			steps := MaxSteps
			p, err := Parse(text)
			if err == nil {
				got, err = p.Find(object(t, sample), &steps)
			}
			if (err != nil) != (failure != nil) || err != nil && !strings.HasSuffix(err.Error(), failure.Error()) {
				t.Errorf("error %v, want %v", err, failure)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		parse        func(string) (Path, error)
		want         error
	}{
		"two recursive descents":      {"each multiplies what is visited", "..a..b", Parse, errRecursions},
		"a descent in a filter":       {"it counts as well", `..a[?(@..b=="x")]`, Parse, errRecursions},
		"many combinations":           {"unions multiply what is visited", strings.Repeat("['a','b']", 5), Parse, errBranches},
		"two expressions":             {"the second would be dropped", ".a}{.b", Parse, errExpressions},
		"a range":                     {"it has no end in one expression", "range .a[*]", Parse, nil},
		"a pointer without a slash":   {"RFC 6901", "spec", ParsePointer, errNotPointer},
		"a pointer to all":            {"nothing would be left", "", ParsePointer, errWhole},
		"a pointer with a bad escape": {"RFC 6901", "/a~2", ParsePointer, errEscape},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.parse(tc.text); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

// A value of every byte would take forty times the size of a string.
func TestFindTakesStringForOneValue(t *testing.T) {
	obj := map[string]any{"status": map[string]any{"text": strings.Repeat("x", 1<<20)}}
	for _, text := range []string{"..nothing", "..", ".status.text.*", ".status.text[*].x", ".status.text.."} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		steps := MaxSteps
		if _, err := p.Find(obj, &steps); err != nil && !strings.HasSuffix(err.Error(), "not array or slice") || MaxSteps-steps > 50 {
			t.Errorf("%s takes %d steps, error %v", text, MaxSteps-steps, err)
		}
	}
}

func TestStepsAreBounded(t *testing.T) {
	_, err := Parse("..[?(@..k)]")
	if !errors.Is(err, errRecursions) {
		t.Fatalf("got error %v", err)
	}
	for _, text := range []string{"..", ".status.l[*].v", ".status.l[?(@.k)]", `.status.l[?(@['k','v'])]`} {
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		find, remove := 3, 3
		if _, err := p.Find(object(t, sample), &find); !errors.Is(err, ErrSteps) {
			t.Errorf("Find %s: got error %v", text, err)
		}
		if err := p.Remove(object(t, sample), &remove); !errors.Is(err, ErrSteps) {
			t.Errorf("Remove %s: got error %v", text, err)
		}
	}
}

func FuzzRemove(f *testing.F) {
	for _, text := range []string{".status.n", "..v", `.status.l[?(@.k=="y")].v`, ".status.n2[*]", "}{", `.status['n','s']`, ".status.n2[-1:]", "", "/status/l/0", "/status/n2/-"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, parse := range []func(string) (Path, error){Parse, ParsePointer} {
			p, err := parse(text)
			if err != nil || p.IsRoot() {
				continue
			}
			obj, steps := object(t, sample), MaxSteps
			if _, err := p.Find(obj, &steps); errors.Is(err, ErrSteps) {
				t.Errorf("path %q took all steps", text)
			}
			if !reflect.DeepEqual(obj, object(t, sample)) {
				t.Errorf("Find of %q changed the object", text)
			}
			if err := p.Remove(obj, &steps); err != nil {
				t.Errorf("path %q: %v", text, err)
			}
			whole, _ := json.Marshal(object(t, sample))
			if rest, err := json.Marshal(obj); err != nil || len(rest) > len(whole) {
				t.Errorf("path %q left %s, error %v", text, rest, err)
			}
		}
	})
}
