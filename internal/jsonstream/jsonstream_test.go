// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonstream

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errFull = errors.New("full")

// items reads the names of a list, of which so many bytes may be held.
func items(from io.Reader, most int64) (names []string, held int64, err error) {
	dec := NewDecoder(from, func(pending int64) error {
		held = max(held, pending)
		if pending > most {
			return errFull
		}
		return nil
	})
	err = Members(dec, func(key string) error {
		if key != "items" {
			return Skip(dec)
		}
		return Elements(dec, func() error {
			var item struct {
				Name string `json:"name"`
			}
			if err := dec.Decode(&item); err != nil {
				return err
			}
			names = append(names, item.Name)
			return nil
		})
	})
	return names, held, err
}

func TestDecoderReadsValueByValue(t *testing.T) {
	const most = 4 << 10
	cases := map[string]struct {
		text   string
		want   []string
		full   bool
		bad    bool
		reason string
	}{
		"as an API server writes it": {
			text: `{"kind":"List","metadata":{"x":[1,{}]},"items":[{"name":"a"},{"name":"b"}]}`, want: []string{"a", "b"}, reason: "members that are not wanted are skipped",
		},
		"a hundred times what may be held": {
			text: `{"items":[` + strings.Repeat(`{"name":"a"},`, 100*most/13) + `{"name":"a"}]}`, want: nil, reason: "no value of it is large",
		},
		"no items":                {text: `{"items":null}`, reason: "null is an empty list"},
		"a value that is large":   {text: `{"items":[{"name":"a"},{"name":"` + strings.Repeat("x", 3*most) + `"}]}`, want: []string{"a"}, full: true, reason: "it would be held whole"},
		"a large value to skip":   {text: `{"other":"` + strings.Repeat("x", 3*most) + `","items":[]}`, full: true, reason: "as above"},
		"space that has no end":   {text: `{"items":[` + strings.Repeat(" ", 3*most), full: true, reason: "a decoder keeps space, too"},
		"a name that has no end":  {text: `{"` + strings.Repeat("x", 3*most), full: true, reason: "as above"},
		"a list where a text was": {text: `["a"]`, bad: true, reason: "it is no object"},
		"an object as list":       {text: `{"items":{"a":1}}`, bad: true, reason: "it is no array"},
		"a text that is cut":      {text: `{"items":[{"name":"a"}`, want: []string{"a"}, bad: true, reason: "half an answer is none"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, held, err := items(strings.NewReader(tc.text), most)
			if tc.full != errors.Is(err, errFull) || tc.bad != (err != nil && !tc.full) {
				t.Errorf("%s: the error is %v", tc.reason, err)
			}
			if held > 3*most {
				t.Errorf("%s: %d bytes are held, of %d", tc.reason, held, most)
			}
			if diff := cmp.Diff(tc.want, got); tc.want != nil && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzItems: whatever is read is what encoding/json reads of the whole.
func FuzzItems(f *testing.F) {
	for _, text := range []string{`{"items":[{"name":"a"}]}`, `{"a":{"items":[1]},"items":null}`, `{"items":[{}`, `[]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, _, err := items(strings.NewReader(string(text)), 1<<20)
		if err != nil {
			return
		}
		end := json.NewDecoder(strings.NewReader(string(text)))
		var whole map[string]json.RawMessage
		if err := end.Decode(&whole); err != nil {
			t.Fatalf("%q was read, and is none: %v", text, err)
		}
		if raw, listed := whole["items"]; !listed && len(got) > 0 {
			t.Errorf("%q has no items, and these were read: %q (%s)", text, got, raw)
		}
	})
}
