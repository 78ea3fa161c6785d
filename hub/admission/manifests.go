// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/spokelet/spokelet/internal/quota"
)

// manifestIDOverhead is what remembering a manifest takes beside its names, at most.
const manifestIDOverhead = 256

var errNotAnObject = errors.New("manifest is not an object")

// validateManifests holds the manifests of a work to the rules that need no one to be
// asked. Of more than the limit allows the size is counted and nothing is read.
func validateManifests(list rawJSON, limit int, m *memoryReservation) error {
	if !list.isAbsent() && list[0] != '[' {
		return fmt.Errorf("%w: manifests are not a list", errInternal)
	}
	size := 0
	for manifest := range listElements(list) {
		// What Manifest.Size of Open Cluster Management counts: the bytes, and
		// what their encoding costs.
		size += (&runtime.RawExtension{Raw: manifest}).Size()
	}
	if size == 0 {
		return errors.New("manifests should not be empty")
	}
	if size > limit {
		return fmt.Errorf("the size of manifests is %d bytes which exceeds the %d limit", size, limit)
	}
	seen := map[manifestID]struct{}{}
	for manifest := range listElements(list) {
		id, err := parseManifestID(manifest)
		if err != nil {
			return err
		}
		if _, twice := seen[id]; twice {
			return fmt.Errorf("duplicate manifest for resource %s/%s with resource type %s.%s", id.namespace, id.name, id.apiVersion, id.kind)
		}
		if err := m.spend(manifestIDOverhead + id.memorySize()); err != nil {
			return err
		}
		seen[id] = struct{}{}
	}
	return nil
}

// listElements yields the elements of a list, which is JSON that a decoder has checked, or
// absent. None is copied, and none is remembered.
func listElements(list rawJSON) iter.Seq[rawJSON] {
	return func(yield func(rawJSON) bool) {
		depth, begin := 0, 1
		for i, b := range quota.Unquoted(list) {
			switch {
			case depth == 1 && (b == ',' || b == ']'):
				element := rawJSON(bytes.TrimSpace(list[begin:i]))
				if len(element) > 0 && !yield(element) {
					return
				}
				begin = i + 1
			case b == '{' || b == '[':
				depth++
			case b == '}' || b == ']':
				depth--
			}
		}
	}
}

// manifestID is what no two manifests of a work have in common.
type manifestID struct{ apiVersion, kind, namespace, name string }

func (id manifestID) memorySize() int64 {
	return int64(len(id.apiVersion) + len(id.kind) + len(id.namespace) + len(id.name))
}

// manifestHeader is what is read of a manifest. As for whoever applies it, a name that is not
// a text is none.
type manifestHeader struct {
	APIVersion lenientString    `json:"apiVersion"`
	Kind       lenientString    `json:"kind"`
	Metadata   manifestMetadata `json:"metadata"`
}

type manifestMetadata struct {
	Name         lenientString `json:"name"`
	GenerateName lenientString `json:"generateName"`
	Namespace    lenientString `json:"namespace"`
}

// UnmarshalJSON reads an object; anything else has no names.
func (m *manifestMetadata) UnmarshalJSON(data []byte) error {
	type fields manifestMetadata
	var f fields
	if data[0] == '{' {
		if err := utiljson.Unmarshal(data, &f); err != nil {
			return err
		}
	}
	*m = manifestMetadata(f)
	return nil
}

// lenientString is a JSON string, or "" for anything else.
type lenientString string

// UnmarshalJSON reads a string.
func (t *lenientString) UnmarshalJSON(data []byte) error {
	*t = ""
	if data[0] != '"' {
		return nil
	}
	return utiljson.Unmarshal(data, (*string)(t))
}

func parseManifestID(manifest rawJSON) (manifestID, error) {
	var h manifestHeader
	if manifest[0] != '{' || !manifest.decode(&h) || h.Kind == "" {
		return manifestID{}, errNotAnObject
	}
	if _, err := schema.ParseGroupVersion(string(h.APIVersion)); err != nil {
		return manifestID{}, errNotAnObject
	}
	if h.Metadata.Name == "" {
		return manifestID{}, errors.New("name must be set in manifest")
	}
	if h.Metadata.GenerateName != "" {
		return manifestID{}, errors.New("generateName must not be set in manifest")
	}
	return manifestID{string(h.APIVersion), string(h.Kind), string(h.Metadata.Namespace), string(h.Metadata.Name)}, nil
}
