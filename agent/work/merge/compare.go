// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	fieldpath "k8s.io/apimachinery/pkg/util/validation/field"
)

// maxPath bounds a formatted path, in bytes.
const maxPath = 100

// Differences are fields that differ.
type Differences struct {
	// Paths of the first fields, such as "spec.containers[0].image", without values.
	Paths []string
	// Total counts all fields.
	Total int
}

// Compare returns the fields in which live differs from required, by the rules of [Merge]: there
// are none if Merge returns [Unchanged]. Paths has at most the first most of them. The error is
// that of Merge.
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

// comparer collects differences.
type comparer struct {
	comparator

	most  int
	found Differences
}

// plainName matches a name that needs no brackets in a path.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func child(p *fieldpath.Path, name string) *fieldpath.Path {
	if plainName.MatchString(name) {
		return p.Child(name)
	}
	return p.Key(name)
}

// formatPath returns the end of a path, which says more than its beginning.
func formatPath(p *fieldpath.Path) string {
	text := p.String()
	if len(text) <= maxPath {
		return text
	}
	text = text[len(text)-maxPath:]
	if i := strings.IndexAny(text, ".["); i >= 0 {
		return "..." + text[i:]
	}
	return "..."
}

func (c *comparer) add(p *fieldpath.Path) {
	c.found.Total++
	if len(c.found.Paths) < c.most {
		c.found.Paths = append(c.found.Paths, formatPath(p))
	}
}

// metadata compares live's metadata with that of the merge.
func (c *comparer) metadata(next, have map[string]any) {
	p := fieldpath.NewPath("metadata")
	for _, field := range slices.Sorted(slices.Values(mergedFields)) {
		c.equal(child(p, field), next[field], have[field])
	}
}

// content compares all but metadata and status.
func (c *comparer) content(r rule, want, have map[string]any) {
	var top *fieldpath.Path
	switch {
	case r.metadataOnly:
	case r.fields == nil:
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !slices.Contains(commonFields, name) {
				c.includesAll(child(top, name), have[name], want[name], name)
			}
		}
	default:
		for _, f := range r.fields {
			c.field(f, child(top, f.name), want[f.name], have[f.name])
		}
	}
}

func (c *comparer) field(f field, p *fieldpath.Path, want, have any) {
	list, isList := want.([]any)
	switch {
	case f.exact:
		c.equal(p, want, have)
	case f.unordered && isList:
		there, _ := have.([]any)
		for i, w := range list {
			if !slices.ContainsFunc(there, func(h any) bool { return c.includes(h, w, f.name) }) {
				c.add(p.Index(i))
			}
		}
	default:
		c.includesAll(p, have, want, f.name)
	}
}

// includesAll adds the fields in which live does not include what is wanted, as by
// [comparator.includes].
func (c *comparer) includesAll(p *fieldpath.Path, have, want any, key string) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := have.(map[string]any)
		if !ok {
			break
		}
		amounts := slices.Contains(quantityMaps, key)
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !amounts || !equalQuantities(live[name], want[name]) {
				c.includesAll(child(p, name), live[name], want[name], name)
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
				c.includesAll(p.Index(i), live[i], want[i], key)
			case live[i] != nil:
				c.add(p.Index(i))
			}
		}
		return
	}
	if !c.includes(have, want, key) {
		c.add(p)
	}
}

// equal adds the fields in which two values are not equal, as by the function of that name.
func (c *comparer) equal(p *fieldpath.Path, want, have any) {
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
			c.equal(child(p, name), want[name], live[name])
		}
		return
	case []any:
		live, ok := have.([]any)
		if !ok || len(live) != len(want) {
			break
		}
		for i := range want {
			c.equal(p.Index(i), want[i], live[i])
		}
		return
	}
	if !equal(want, have) {
		c.add(p)
	}
}
