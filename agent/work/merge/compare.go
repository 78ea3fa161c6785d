// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxPath bounds the text of one path, in bytes.
const maxPath = 100

// Differences are the paths of fields, of which the first are named.
type Differences struct {
	// Paths are those that are named, as "spec.containers[0].image", without any value.
	Paths []string
	// Total counts all of them.
	Total int
}

// Compare returns in which fields live has not what required says: by the same rules
// and in the same eyes as [Merge], so that there are none where that says [Same]. The
// first most of them are named. The error is that of Merge.
func Compare(required, live *unstructured.Unstructured, most int) (Differences, error) {
	gk := required.GroupVersionKind().GroupKind()
	if gk != live.GroupVersionKind().GroupKind() {
		return Differences{}, fmt.Errorf("%s and %s: %w", gk, live.GroupVersionKind().GroupKind(), ErrOtherKind)
	}
	r, have := ruleOf(gk), live.Object
	want, err := r.prepareRequired(required.Object, have)
	if err != nil {
		return Differences{}, err
	}
	metadata, _, err := mergeMetadata(want, have)
	if err != nil {
		return Differences{}, err
	}
	c := comparer{comparator: newComparator(groupOf(want)), most: most}
	c.metadata(metadata, nestedMap(have, "metadata"))
	c.content(r, want, have)
	return c.found, nil
}

// comparer collects what differs.
type comparer struct {
	comparator

	most  int
	found Differences
}

// at is a place in an object: the name of a field, or its index, below another place.
type at struct {
	above *at
	name  string
}

func (p *at) field(name string) *at { return &at{above: p, name: name} }
func (p *at) index(i int) *at       { return &at{above: p, name: "[" + strconv.Itoa(i) + "]"} }

// plainName is a name that needs no brackets in a path.
var plainName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_-]*|\[[0-9]+\])$`)

// String is the path of a place.
func (p *at) String() string {
	var parts []string
	size := 0
	for ; p != nil; p = p.above {
		name := p.name
		if !plainName.MatchString(name) {
			name = "[" + name + "]"
		}
		if p.above != nil && !strings.HasPrefix(name, "[") {
			name = "." + name
		}
		if size += len(name); size > maxPath {
			parts = append(parts, "...") // the end says more than the beginning
			break
		}
		parts = append(parts, name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

func (c *comparer) add(p *at) {
	c.found.Total++
	if len(c.found.Paths) < c.most {
		c.found.Paths = append(c.found.Paths, p.String())
	}
}

// metadata compares live's with what it would become.
func (c *comparer) metadata(next, have map[string]any) {
	p := (*at)(nil).field("metadata")
	for _, field := range slices.Sorted(slices.Values(mergedFields)) {
		c.equal(p.field(field), next[field], have[field])
	}
}

// content compares all but metadata and status.
func (c *comparer) content(r rule, want, have map[string]any) {
	var top *at
	switch {
	case r.metadataOnly:
	case r.fields == nil:
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !slices.Contains(commonFields, name) {
				c.covers(top.field(name), have[name], want[name], name)
			}
		}
	default:
		for _, f := range r.fields {
			c.field(f, top.field(f.name), want[f.name], have[f.name])
		}
	}
}

func (c *comparer) field(f field, p *at, want, have any) {
	list, isList := want.([]any)
	switch {
	case f.exact:
		c.equal(p, want, have)
	case f.unordered && isList:
		there, _ := have.([]any)
		for i, w := range list {
			if !slices.ContainsFunc(there, func(h any) bool { return c.comparator.includes(h, w, f.name) }) {
				c.add(p.index(i))
			}
		}
	default:
		c.covers(p, have, want, f.name)
	}
}

// covers adds where live has not what is wanted, as [lens.covers] sees it.
func (c *comparer) covers(p *at, have, want any, key string) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := have.(map[string]any)
		if !ok {
			break
		}
		amounts := slices.Contains(quantityMaps, key)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !amounts || !equalQuantities(live[name], want[name]) {
				c.covers(p.field(name), live[name], want[name], name)
			}
		}
		return
	case []any:
		live, ok := have.([]any)
		if !ok || len(live) != len(want) {
			break
		}
		for i := range want {
			switch {
			case want[i] != nil:
				c.covers(p.index(i), live[i], want[i], key)
			case live[i] != nil:
				c.add(p.index(i))
			}
		}
		return
	}
	if !c.comparator.includes(have, want, key) {
		c.add(p)
	}
}

// equal adds where two values are not the same, as the function of that name sees it.
func (c *comparer) equal(p *at, want, have any) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := have.(map[string]any)
		if !ok {
			break
		}
		names := map[string]struct{}{}
		for name := range want {
			names[name] = struct{}{}
		}
		for name := range live {
			names[name] = struct{}{}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			c.equal(p.field(name), want[name], live[name])
		}
		return
	case []any:
		live, ok := have.([]any)
		if !ok || len(live) != len(want) {
			break
		}
		for i := range want {
			c.equal(p.index(i), want[i], live[i])
		}
		return
	}
	if !equal(want, have) {
		c.add(p)
	}
}
