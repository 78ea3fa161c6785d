// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tail

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiltersMatch(t *testing.T) {
	event := Event{
		Outcome: "ok", Method: "GET", Headers: map[string]string{"x-team": "blue team", "accept": "*/*"},
		ClientIP: netip.MustParseAddr("192.0.2.1"), Texts: []string{"hello world", `{"a":1}`, "TypeError: no"},
	}
	cases := map[string]struct {
		body   string
		want   bool
		reason string
	}{
		"nothing":                {body: ``, want: true, reason: "wrangler may send nothing"},
		"null":                   {body: `null`, want: true, reason: "as above"},
		"no filters":             {body: `{}`, want: true, reason: "as above"},
		"null as filters":        {body: `{"filters":null}`, want: true, reason: "as above"},
		"an empty list":          {body: `{"filters":[]}`, want: true, reason: "as above"},
		"outcome":                {body: `{"filters":[{"outcome":["canceled","ok"]}]}`, want: true, reason: "one of the values is enough"},
		"another outcome":        {body: `{"filters":[{"outcome":["exception","unknown"]}]}`, reason: "none of them is"},
		"method":                 {body: `{"filters":[{"method":["POST","get"]}]}`, want: true, reason: "whatever its case"},
		"another method":         {body: `{"filters":[{"method":["POST"]}]}`, reason: "it is another"},
		"header":                 {body: `{"filters":[{"header":{"key":"X-Team"}}]}`, want: true, reason: "it is there"},
		"another header":         {body: `{"filters":[{"header":{"key":"x-tea"}}]}`, reason: "names are compared as a whole"},
		"header with text":       {body: `{"filters":[{"header":{"key":"x-team","query":"blue"}}]}`, want: true, reason: "it is a part of the value"},
		"header with other text": {body: `{"filters":[{"header":{"key":"accept","query":"blue"}}]}`, reason: "it is a part of another's"},
		"address":                {body: `{"filters":[{"client_ip":["2001:db8::1","::ffff:192.0.2.1"]}]}`, want: true, reason: "it is the same in IPv6"},
		"another address":        {body: `{"filters":[{"client_ip":["192.0.2.11"]}]}`, reason: "addresses are no texts"},
		"text of a log":          {body: `{"filters":[{"query":"o w"}]}`, want: true, reason: "it is a part"},
		"text of a value":        {body: `{"filters":[{"query":"\"a\":1"}]}`, want: true, reason: "values are JSON"},
		"text of an exception":   {body: `{"filters":[{"query":"TypeError: n"}]}`, want: true, reason: "with its name"},
		"text in another case":   {body: `{"filters":[{"query":"HELLO"}]}`, reason: "case counts"},
		"all of several":         {body: `{"filters":[{"query":"hello"},{"method":["GET"]},{"outcome":["ok"]}]}`, want: true, reason: "all match"},
		"not all of several":     {body: `{"filters":[{"query":"hello"},{"method":["POST"]}]}`, reason: "one does not"},
		"several in one":         {body: `{"filters":[{"query":"hello","method":["POST"]}]}`, reason: "as if they were several"},
		"all samples":            {body: `{"filters":[{"sampling_rate":1}]}`, want: true, reason: "draws are below 1"},
		"no samples":             {body: `{"filters":[{"sampling_rate":0}]}`, reason: "draws are not below 0"},
		"what is beside filters": {body: `{"filters":[],"debug":false}`, want: true, reason: "it selects nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFilters([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Match(event); got != tc.want {
				t.Errorf("it matches: %t, and %s", got, tc.reason)
			}
		})
	}
}

func TestRequestFiltersSkipOtherEvents(t *testing.T) {
	for _, body := range []string{`{"method":["GET"]}`, `{"header":{"key":"a"}}`, `{"client_ip":["192.0.2.1"]}`} {
		f, err := ParseFilters([]byte(`{"filters":[` + body + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if f.Match(Event{Outcome: "ok"}) {
			t.Errorf("%s matches", body)
		}
	}
}

func TestSamplingRate(t *testing.T) {
	rate := 0.25
	f := filter{samplingRate: &rate}
	for draw, want := range map[float64]bool{0: true, 0.24: true, 0.25: false, 0.99: false} {
		if got := f.match(Event{}, draw); got != want {
			t.Errorf("a draw of %v is in the sample: %t", draw, got)
		}
	}
}

func TestParseFiltersRejectsInvalid(t *testing.T) {
	one := func(filter string) string { return `{"filters":[{"query":"a"},` + filter + `]}` }
	cases := map[string]struct {
		body, want  string
		unsupported bool
	}{
		"no JSON":             {body: `{`, want: "filters: unexpected end of JSON input"},
		"a list":              {body: `[]`, want: "filters: json: cannot unmarshal array into Go value of type struct { Filters []map[string]json.RawMessage \"json:\\\"filters\\\"\" }"},
		"two values":          {body: `{}{}`, want: "filters: invalid character '{' after top-level value"},
		"an unknown one":      {body: one(`{"colour":"red"}`), want: `filters[1]: "colour" is no filter`},
		"the first of two":    {body: one(`{"b":1,"a":1}`), want: `filters[1]: "a" is no filter`},
		"a long one":          {body: one(`{"` + strings.Repeat("x", 1000) + `":1}`), want: `filters[1]: "` + strings.Repeat("x", maxQuoted) + `" is no filter`},
		"an empty one":        {body: one(`{}`), want: "filters[1]: is empty"},
		"null":                {body: one(`null`), want: "filters[1]: is empty"},
		"no outcome":          {body: one(`{"outcome":[]}`), want: "filters[1].outcome: is empty"},
		"no methods":          {body: one(`{"method":null}`), want: "filters[1].method: is empty"},
		"a header without":    {body: one(`{"header":{"query":"a"}}`), want: "filters[1].header: has no key"},
		"too much of a rate":  {body: one(`{"sampling_rate":1.5}`), want: "filters[1].sampling_rate: is not a number from 0 to 1"},
		"too little of it":    {body: one(`{"sampling_rate":-1}`), want: "filters[1].sampling_rate: is not a number from 0 to 1"},
		"no rate":             {body: one(`{"sampling_rate":null}`), want: "filters[1].sampling_rate: is not a number from 0 to 1"},
		"no address":          {body: one(`{"client_ip":["a"]}`), want: `filters[1].client_ip: "a" is no IP address`},
		"the client's own":    {body: one(`{"client_ip":["self"]}`), want: "filters[1].client_ip: the address of who asks is not known as scripts see it: unsupported operation", unsupported: true},
		"a version":           {body: one(`{"scriptVersion":"x"}`), want: "filters[1].scriptVersion: a tail is of all versions of a script: unsupported operation", unsupported: true},
		"a query of a number": {body: one(`{"query":1}`), want: "filters[1].query: json: cannot unmarshal number into Go value of type string"},
		"too many":            {body: `{"filters":[` + strings.Repeat(`{},`, maxFilters) + `{}]}`, want: "filters: 33 are more than 32"},
		"too large":           {body: strings.Repeat(" ", maxFilterBody+1), want: "filters: there are more than 65536 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseFilters([]byte(tc.body))
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if errors.Is(err, errors.ErrUnsupported) != tc.unsupported {
				t.Errorf("it is said to be unsupported: %t", !tc.unsupported)
			}
		})
	}
}

// FuzzParseFilters: whatever a client sends, it is filters that can be used, or an error that
// is always the same and not long.
func FuzzParseFilters(f *testing.F) {
	f.Add([]byte(`{"filters":[{"sampling_rate":0.5},{"outcome":["ok"]},{"method":["GET"]},{"header":{"key":"a","query":"b"}},{"client_ip":["192.0.2.1"]},{"query":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		filters, err := ParseFilters(body)
		_, again := ParseFilters(body)
		if fmt.Sprint(err) != fmt.Sprint(again) {
			t.Fatalf("%v, and then %v", err, again)
		}
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if len(filters.all) > maxFilters {
			t.Fatalf("%d filters", len(filters.all))
		}
		filters.Match(Event{Method: "GET", Headers: map[string]string{"a": "b"}, Texts: []string{"x"}})
	})
}
