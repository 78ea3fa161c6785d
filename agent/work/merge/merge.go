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
	// ErrMalformed says that an object's metadata, or a field with a rule of its
	// own, has not the shape that every API server demands.
	ErrMalformed = errors.New("object is malformed")
	// ErrOtherKind says that live is not an object of the required kind.
	ErrOtherKind = errors.New("objects are of different kinds")
)

// Verdict says what has to be done to an object.
type Verdict int

// The verdicts.
const (
	// Unchanged: the object has what is required of it.
	Unchanged Verdict = iota
	// Update: the object is replaced by what was returned.
	Update
	// Recreate: the object is deleted, and created as what was returned; what
	// differs cannot be changed.
	Recreate
)

// String is the verdict as a word.
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

// Merge returns what live must become so that it has what required says, and
// whether that differs. Neither argument is changed; what is returned may share
// parts with both, and with Same it is live itself.
//
// With Update next has live's resourceVersion and no managedFields, and is sent
// by PUT; with Recreate it has nothing that the API server gives an object. The
// owners to add are among required's. If an object
// still differs after an update, the API server does not take a field (it does
// not know it, or writes it otherwise): the same update would change nothing again.
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

// NewObject returns what is created where nothing is live: required without what
// belongs to the API server, and without the keys that ask for a removal.
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

// withoutManagedFields is an object without its managedFields.
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

// removeServerFields removes from metadata what the API server gives an object.
func removeServerFields(metadata map[string]any) {
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
	} {
		delete(metadata, field)
	}
}

// shallowCopy copies a map and shares what is in it.
func shallowCopy(m map[string]any) map[string]any {
	out := make(map[string]any, len(m)+1)
	maps.Copy(out, m)
	return out
}
