// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mergedFields of metadata are those in which a manifest has a say.
var mergedFields = []string{"labels", "annotations", "ownerReferences"}

// mergeMetadata returns live's metadata with what required adds, and whether
// that is more than there was.
func mergeMetadata(required, live map[string]any) (map[string]any, bool, error) {
	want, err := mapField(required, "metadata")
	if err != nil {
		return nil, false, err
	}
	have, err := mapField(live, "metadata")
	if err != nil {
		return nil, false, err
	}
	out := shallowCopy(have)
	delete(out, "managedFields") // absent, they stay as they are
	for _, field := range []string{"labels", "annotations"} {
		if err := mergeStrings(out, want, field); err != nil {
			return nil, false, err
		}
	}
	if err := mergeOwners(out, want); err != nil {
		return nil, false, err
	}
	for _, field := range mergedFields {
		if !equal(out[field], have[field]) {
			return out, true, nil
		}
	}
	return out, false, nil
}

// mapField returns a map in an object; none and null are an empty one.
func mapField(object map[string]any, field string) (map[string]any, error) {
	switch m := object[field].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return m, nil
	default:
		return nil, fmt.Errorf("%s is not an object: %w", field, ErrMalformed)
	}
}

// mergeStrings sets in out what want has under field. Keys that end in "-" are
// taken away, last: a manifest that both sets and removes a key removes it.
func mergeStrings(out, want map[string]any, field string) error {
	wanted, err := mapField(want, field)
	if err != nil {
		return fmt.Errorf("metadata.%w", err)
	}
	had, err := mapField(out, field)
	if err != nil {
		return fmt.Errorf("metadata.%w", err)
	}
	merged := shallowCopy(had)
	for key, value := range wanted {
		if _, ok := value.(string); !ok && value != nil {
			return fmt.Errorf("metadata.%s has a value that is not a string: %w", field, ErrMalformed)
		}
		if value != nil && !strings.HasSuffix(key, "-") {
			merged[key] = value
		}
	}
	for key := range wanted {
		if strings.HasSuffix(key, "-") {
			delete(merged, strings.TrimRight(key, "-"))
		}
	}
	delete(out, field)
	if len(merged) > 0 {
		out[field] = merged
	}
	return nil
}

// mergeOwners adds want's owners to those in out.
func mergeOwners(out, want map[string]any) error {
	wanted, err := ownersOf(want)
	if err != nil {
		return err
	}
	had, err := ownersOf(out)
	if err != nil {
		return err
	}
	merged := slices.Clone(had)
	for _, o := range wanted {
		i := findOwner(merged, o)
		if i < 0 {
			merged = append(merged, o)
			continue
		}
		// What others set on it, such as blockOwnerDeletion, stays.
		joined := shallowCopy(merged[i])
		maps.Copy(joined, o)
		merged[i] = joined
	}
	delete(out, "ownerReferences")
	if len(merged) == 0 {
		return nil
	}
	list := make([]any, len(merged))
	for i := range merged {
		list[i] = merged[i]
	}
	out["ownerReferences"] = list
	return nil
}

func ownersOf(metadata map[string]any) ([]map[string]any, error) {
	list, ok := metadata["ownerReferences"].([]any)
	if !ok && metadata["ownerReferences"] != nil {
		return nil, fmt.Errorf("metadata.ownerReferences is not a list: %w", ErrMalformed)
	}
	out := make([]map[string]any, 0, len(list))
	for _, entry := range list {
		o, ok := entry.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("metadata.ownerReferences has an entry that is not an object: %w", ErrMalformed)
		}
		out = append(out, o)
	}
	return out, nil
}

// findOwner returns where an owner is in a list: by its UID, else by its group,
// kind and name, for one that was created anew has another UID.
func findOwner(list []map[string]any, o map[string]any) int {
	i := slices.IndexFunc(list, func(other map[string]any) bool {
		return stringField(o, "uid") != "" && stringField(other, "uid") == stringField(o, "uid")
	})
	if i >= 0 {
		return i
	}
	return slices.IndexFunc(list, func(other map[string]any) bool {
		return stringField(other, "kind") == stringField(o, "kind") && stringField(other, "name") == stringField(o, "name") && ownerGroup(other) == ownerGroup(o)
	})
}

func ownerGroup(o map[string]any) string {
	gv, err := schema.ParseGroupVersion(stringField(o, "apiVersion"))
	if err != nil {
		return stringField(o, "apiVersion")
	}
	return gv.Group
}

// stringField returns a field that is a string, or nothing.
func stringField(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}
