// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// ofJSON is a script with one binding of JSON.
func ofJSON(raw string) release.Script {
	return release.Script{ScriptName: "hello", CompatibilityDate: "2026-01-15", MainModule: "index.js", Bindings: []release.Binding{
		{Name: "VARS", Type: release.BindingJSON, JSON: &apiextensionsv1.JSON{Raw: []byte(raw)}},
	}}
}

// stored returns JSON as an API server serves it when it has read it from etcd.
func stored(raw []byte) ([]byte, error) {
	object := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Any","json":%s}`, raw)
	for range 2 {
		var o unstructured.Unstructured
		if err := o.UnmarshalJSON(object); err != nil {
			return nil, err
		}
		var err error
		if object, err = o.MarshalJSON(); err != nil {
			return nil, err
		}
	}
	var o struct {
		JSON json.RawMessage `json:"json"`
	}
	err := json.Unmarshal(object, &o)
	return o.JSON, err
}

// value writes a random value of JSON, with its keys in random order: twice for the same source
// of values and different orders, it is the same value.
func value(values, order *rand.Rand, depth int) string {
	const digits = "0123456789"
	kind := values.IntN(8)
	if depth == 0 {
		kind %= 6
	}
	switch kind {
	case 0:
		return []string{"null", "true", "false"}[values.IntN(3)]
	case 1:
		return strconv.FormatInt(values.Int64()-values.Int64(), 10)
	case 2:
		return []string{"0", "-0", "-0.0", "1.0", "1e2", "1E-7", "0.1", "1.50", "1e21", "-1e-20"}[values.IntN(10)]
	case 3: // more digits than a number of 64 bits has
		return "1" + strings.Repeat(digits[values.IntN(10):][:1], 18+values.IntN(10))
	case 4:
		return []string{`"é"`, `"\u00e9"`, `"<&>"`, `"\u2028"`, `"\ud83d\ude00"`, `"\ud800"`, `"\/"`, `""`}[values.IntN(8)]
	case 5:
		return strconv.Quote(strings.Repeat("x", values.IntN(5)))
	case 6:
		elements := make([]string, values.IntN(4))
		for i := range elements {
			elements[i] = value(values, order, depth-1)
		}
		return "[" + strings.Join(elements, " ,\n") + "]"
	}
	fields := make([]string, values.IntN(6))
	for i := range fields {
		fields[i] = fmt.Sprintf(`"%c%d": %s`, "zaZé"[values.IntN(3)], i, value(values, order, depth-1))
	}
	order.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ",") + "}"
}

func TestTemplateIgnoresJSONEncoding(t *testing.T) {
	for seed := range uint64(2000) {
		text := func(order uint64) string {
			return value(rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, order)), 4)
		}
		written, shuffled := text(1), text(2)
		served, err := stored([]byte(written))
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		want := Template(ofJSON(written))
		if Template(ofJSON(shuffled)) != want {
			t.Errorf("seed %d: %s is another template than %s", seed, shuffled, written)
		}
		if Template(ofJSON(string(served))) != want {
			t.Errorf("seed %d: %s, which an API server made of it, is another template than %s", seed, served, written)
		}
		if Template(ofJSON("["+written+"]")) == want || Template(ofJSON(strconv.Quote(written))) == want {
			t.Errorf("seed %d: another value is the same template as %s", seed, written)
		}
	}
}

func FuzzTemplateIgnoresJSONEncoding(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[{"d":-0.0,"c":1e2}]}`, `12345678901234567890`, `"\ud800"`, `{"a":1,"a":2}`, `1e400`, `nonsense`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		served, err := stored(raw)
		if err != nil || bytes.Equal(served, []byte("null")) && !bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			return // no API server takes it as one value
		}
		if Template(ofJSON(string(raw))) != Template(ofJSON(string(served))) {
			t.Errorf("%s is another template than %s", served, raw)
		}
	})
}

func TestEquivalentTemplatesHaveOneDigest(t *testing.T) {
	base := func() release.Script {
		return release.Script{
			ScriptName: "hello", CompatibilityDate: "2026-01-15", CompatibilityFlags: []string{"a", "b"}, ScriptURLs: []string{"s3://workers/1234/hello/1"},
			Bindings: []release.Binding{{Name: "A", Type: "plain_text", Text: "a"}, {Name: "B", Type: "plain_text", Text: "b"}},
		}
	}
	cases := map[string]struct {
		reason string
		change func(*release.Script)
		same   bool
	}{
		"another spelling of the date":  {"the operator reads both", func(s *release.Script) { s.CompatibilityDate = "01/15/2026" }, true},
		"another spelling of the URLs":  {"the operator reads both", func(s *release.Script) { s.ScriptURLs, s.ScriptsURLs = nil, s.ScriptURLs }, true},
		"another order of the bindings": {"they have names", func(s *release.Script) { s.Bindings[0], s.Bindings[1] = s.Bindings[1], s.Bindings[0] }, true},
		"another order of the flags":    {"they are a set", func(s *release.Script) { s.CompatibilityFlags = []string{"b", "a"} }, true},
		"empty lists":                   {"an API server leaves them out", func(s *release.Script) { s.ModuleTypes = []release.ModuleType{} }, true},
		"another date":                  {"workerd runs it otherwise", func(s *release.Script) { s.CompatibilityDate = "2026-01-16" }, false},
		"another text":                  {"the script reads it", func(s *release.Script) { s.Bindings[0].Text = "b" }, false},
		"another Secret":                {"it has other values", func(s *release.Script) { s.SecretRef = "other" }, false},
		"other modules":                 {"it is another code", func(s *release.Script) { s.ScriptURLs[0] += "/2" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := base()
			tc.change(&changed)
			if same := Template(changed) == Template(base()); same != tc.same {
				t.Errorf("same: %t: %s", same, tc.reason)
			}
		})
	}
}
