// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestReadCatalogSkipsInvalidNames: the others stay.
func TestReadCatalogSkipsInvalidNames(t *testing.T) {
	const list = `{"name":%s,"singularName":%s,"namespaced":true,"kind":%s,"verbs":["list"],"shortNames":[%s]}`
	const whole = `{"resource":%s,"singularResource":%s,"scope":"Namespaced","responseKind":{"kind":%s},"verbs":["list"],"shortNames":[%s]}`
	long := strings.Repeat("a", 64)
	quote := func(s string) string {
		raw, _ := json.Marshal(s)
		return string(raw)
	}
	cases := map[string]struct {
		reason                       string
		plural, singular, kind, name string
		group, version               string
		kept                         bool
	}{
		"longest":         {reason: "it is allowed", plural: long[1:], singular: long[1:], kind: "A" + long[2:], name: long[1:], kept: true},
		"no singular":     {reason: "old extensions have none", plural: "as", kind: "A", name: "a", kept: true},
		"long kind":       {reason: "it is copied before each item", plural: "as", kind: strings.Repeat("A", 60<<10), name: "a"},
		"kind of 64":      {reason: "63 are allowed", plural: "as", kind: long, name: "a"},
		"kind with quote": {reason: "it is no JSON behind a quote", plural: "as", kind: `A","x":"`, name: "a"},
		"control":         {reason: "Go's quotes are not JSON's", plural: "as", kind: "A\x01", name: "a"},
		"no kind":         {reason: "items would have none", plural: "as", name: "a"},
		"long plural":     {reason: "it is in paths and messages", plural: long, kind: "A", name: "a"},
		"path":            {reason: "it would lead to another path", plural: "..", kind: "A", name: "a"},
		"long singular":   {reason: "it is kept", plural: "as", singular: long, kind: "A", name: "a"},
		"long short name": {reason: "it is kept", plural: "as", kind: "A", name: long},
		"long group":      {reason: "it is before each item", plural: "as", kind: "A", name: "a", group: strings.Repeat("a.", 127) + "a"},
		"group path":      {reason: "it would lead to another path", plural: "as", kind: "A", name: "a", group: "a/../b"},
		"long version":    {reason: "it is before each item", plural: "as", kind: "A", name: "a", version: long},
		"no version":      {reason: "nothing can be asked for", plural: "as", kind: "A", name: "a", version: "-"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group, version := cmp.Or(tc.group, "y.io"), cmp.Or(tc.version, "v1")
			one := fmt.Sprintf(list, quote(tc.plural), quote(tc.singular), quote(tc.kind), quote(tc.name))
			listed := &discoverySession{bodies: map[string]string{
				"/api":          noCore,
				"/apis":         fmt.Sprintf(`{"groups":[{"name":"x.io","versions":[{"version":"v1"}]},{"name":%s,"versions":[{"version":%s}]}]}`, quote(group), quote(version)),
				"/apis/x.io/v1": `{"resources":[` + thing + `]}`, "/apis/" + group + "/" + version: `{"resources":[` + one + `]}`,
			}}
			at := fmt.Sprintf(`{"metadata":{"name":%s},"versions":[{"version":%s,"resources":[`, quote(group), quote(version))
			aggregated := &discoverySession{bodies: map[string]string{"/api": noCore, "/apis": `{"items":[` +
				at + fmt.Sprintf(whole, quote(tc.plural), quote(tc.singular), quote(tc.kind), quote(tc.name)) + `]}]},` +
				`{"metadata":{"name":"x.io"},"versions":[{"version":"v1","resources":[` + thingOne + `}]}]}]}`}}
			want := 1
			if tc.kept {
				want = 2
			}
			for form, session := range map[string]*discoverySession{"listed": listed, "aggregated": aggregated} {
				c, err := readCatalog(t.Context(), "c1", session, alice(), memoryReservation{})
				if err != nil || len(c.resources) != want {
					t.Errorf("%s: %s: %d resources, %v; want %d", tc.reason, form, len(c.resources), err, want)
					continue
				}
				if _, found := c.find(resourceArg{name: "things"}); !found {
					t.Errorf("%s: %s: the resource of another group is not found", tc.reason, form)
				}
			}
		})
	}
}
