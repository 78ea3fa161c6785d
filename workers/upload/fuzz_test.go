// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	release "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
)

// FuzzRead has a peer send anything. Seeds are in testdata, too.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"modules.form", "serviceworker.form", "secrets.form", "nobundle.form"} {
		kind, body := recorded(f, name)
		f.Add(kind, body)
	}
	for _, parts := range [][]part{
		{with(``), module},
		{{"ADD", release.TypeWasm, "x"}, settings(`{"body_part":"a","bindings":[{"name":"ADD","type":"wasm_module","part":"ADD"}]}`), {"a", release.TypeCommonJS, "x"}},
		{with(`,"bindings":[{"name":"A","type":"json","json":{"a":[1]}},{"name":"B","type":"secret_text","text":"x"}]`), module},
	} {
		kind, body := form(f, parts...)
		f.Add(kind, body)
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		up, err := Read(kind, bytes.NewReader(body), limits, &memory{})
		if err != nil {
			if up != nil || !errors.Is(err, ErrIncomplete) && !errors.As(err, new(*Error)) {
				t.Errorf("the error is none of this package's: %+v, %v", up, err)
			}
			return
		}
		total := 0
		for _, file := range up.Files {
			total += len(file.Content)
			if clean, err := moduleName(file.Name); err != nil || clean != file.Name {
				t.Errorf("a module has the name %q", file.Name)
			}
		}
		if total > int(limits.MaxBytes) || len(up.Files) > limits.MaxModules {
			t.Errorf("%d modules have %d bytes", len(up.Files), total)
		}
		if !slices.IsSortedFunc(up.Files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) }) {
			t.Error("the modules are not in order")
		}
		if _, found := up.findFile(cmp.Or(up.Script.MainModule, up.Script.BodyPart)); !found {
			t.Error("the entry is not there")
		}
		for _, b := range up.Script.Bindings {
			if b.Type == release.BindingSecretText {
				t.Errorf("%s is a secret among the settings", b.Name)
			}
		}
	})
}

// FuzzObject compares the fields and elements of JSON with those that encoding/json reads.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, ` { "a" : [1, {"b":"]},\""}] , "\u0061\\" : "x\\" } `, `{"a":1,"a":2}`, `{"é":null,"":[[],{}]}`, `{"a":"\ud800"}`, `[]`, `7`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want map[string]json.RawMessage
		if !json.Valid(raw) {
			return
		}
		o, err := newObject("it", raw, 1<<20)
		if json.Unmarshal(raw, &want) != nil || want == nil {
			if err == nil {
				t.Errorf("%q is no object", raw)
			}
			return
		}
		if err != nil {
			// encoding/json takes the last of two fields.
			if members, _ := elements(bytes.TrimSpace(raw), 1<<20); len(members) == len(want) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		if len(o.fields) != len(want) {
			t.Errorf("%q has %d fields, want %d", raw, len(o.fields), len(want))
		}
		for name, value := range want {
			if !bytes.Equal(o.fields[name], value) {
				t.Errorf("%q: field %q is %q, want %q", raw, name, o.fields[name], value)
			}
			var list []json.RawMessage
			if value[0] != '[' || json.Unmarshal(value, &list) != nil {
				continue
			}
			if all := o.list(name, 1<<20); !slices.EqualFunc(all, list, func(a []byte, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
				t.Errorf("%q: list %q is %q, want %q", raw, name, all, list)
			}
		}
	})
}
