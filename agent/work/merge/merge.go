// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var (
	// ErrMalformed is returned if an object's metadata, or a field with a rule of its
	// own, does not have the type that every API server requires.
	ErrMalformed = errors.New("object is malformed")
	// ErrOtherKind is returned if live is not an object of the required kind.
	ErrOtherKind = errors.New("objects are of different kinds")
)

// Verdict is how an object must be changed.
type Verdict int

// The verdicts.
const (
	// Unchanged is the verdict for an object that has everything required.
	Unchanged Verdict = iota
	// Update replaces the object with the returned one.
	Update
	// Recreate deletes the object and creates the returned one, because a field that
	// differs is immutable.
	Recreate
)

// String returns the name of the verdict.
func (v Verdict) String() string {
	switch v {
	case Unchanged:
		return "Same"
	case Update:
		return "Update"
	case Recreate:
		return "Recreate"
	default:
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
}

// Merge returns the object that live must become to have everything required, and
// whether that differs. Neither argument is changed; the returned object may share
// parts with both, and with Same it is live itself.
//
// With Update next has live's resourceVersion and no managedFields, and is sent
// by PUT; with Recreate it has no fields that the API server sets. The
// owners to add are among required's. If an object
// still differs after an update, the API server ignores or rewrites a field: the same
// update would change nothing again.
//
// The error wraps [ErrMalformed] or [ErrOtherKind].
func Merge(required, live *unstructured.Unstructured) (next *unstructured.Unstructured, verdict Verdict, err error) {
	return mergeObjects(required, live, false)
}

// Replace is Merge for a manifest that has changed since it was last written:
// the content becomes that of required even where live has all of it, so that
// what the manifest no longer has goes. It is Same if nothing would change.
func Replace(required, live *unstructured.Unstructured) (next *unstructured.Unstructured, verdict Verdict, err error) {
	return mergeObjects(required, live, true)
}

func mergeObjects(required, live *unstructured.Unstructured, replace bool) (*unstructured.Unstructured, Verdict, error) {
	gk := required.GroupVersionKind().GroupKind()
	if gk != live.GroupVersionKind().GroupKind() {
		return nil, Unchanged, fmt.Errorf("%s and %s: %w", gk, live.GroupVersionKind().GroupKind(), ErrOtherKind)
	}
	r, have := ruleOf(gk), live.Object
	want, err := r.prepareRequired(required.Object, have)
	if err != nil {
		return nil, Unchanged, err
	}
	metadata, changed, err := mergeMetadata(want, have)
	if err != nil {
		return nil, Unchanged, err
	}
	differs := !r.isSatisfied(want, have)
	next := shallowCopy(have)
	next["metadata"] = metadata
	if differs || replace {
		r.setContent(next, want)
	}
	switch {
	case differs && r.mustRecreate(want, have):
		delete(next, "status")
		removeServerFields(metadata)
		return &unstructured.Unstructured{Object: next}, Recreate, nil
	case differs || changed || replace && !equal(next, withoutManagedFields(have)):
		return &unstructured.Unstructured{Object: next}, Update, nil
	default:
		return live, Unchanged, nil
	}
}

// NewObject returns the object to create if none is live: required without the fields
// that the API server sets, and without the keys that request a removal.
func NewObject(required *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	metadata, _, err := mergeMetadata(required.Object, nil)
	if err != nil {
		return nil, err
	}
	own, _ := required.Object["metadata"].(map[string]any)
	for key, value := range own {
		if _, merged := metadata[key]; !merged && !slices.Contains(mergedFields, key) {
			metadata[key] = value
		}
	}
	removeServerFields(metadata)
	next := shallowCopy(required.Object)
	delete(next, "status")
	next["metadata"] = metadata
	return &unstructured.Unstructured{Object: next}, nil
}

// withoutManagedFields returns an object without its managedFields.
func withoutManagedFields(object map[string]any) map[string]any {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return object
	}
	metadata = shallowCopy(metadata)
	delete(metadata, "managedFields")
	object = shallowCopy(object)
	object["metadata"] = metadata
	return object
}

// removeServerFields removes the metadata that the API server sets.
func removeServerFields(metadata map[string]any) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
	} {
		delete(metadata, field)
	}
}

// shallowCopy copies a map, but not its values.
func shallowCopy(m map[string]any) map[string]any {
	out := make(map[string]any, len(m)+1)
	maps.Copy(out, m)
	return out
}
