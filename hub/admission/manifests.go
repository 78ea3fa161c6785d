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

// identityCost is what remembering a manifest takes beside its names, at most.
const identityCost = 256

var errNotAnObject = errors.New("manifest is not an object")

// checkManifests holds the manifests of a work to the rules that need no one to be
// asked. Of more than the limit allows the size is counted and nothing is read.
func checkManifests(list raw, limit int, m *memory) error {
	if !list.absent() && list[0] != '[' {
		return fmt.Errorf("%w: manifests are not a list", errUndecided)
	}
	size := 0
	for manifest := range elements(list) {
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
	seen := map[identity]struct{}{}
	for manifest := range elements(list) {
		id, err := identify(manifest)
		if err != nil {
			return err
		}
		if _, twice := seen[id]; twice {
			return fmt.Errorf("duplicate manifest for resource %s/%s with resource type %s.%s", id.namespace, id.name, id.apiVersion, id.kind)
		}
		if err := m.take(identityCost + id.size()); err != nil {
			return err
		}
		seen[id] = struct{}{}
	}
	return nil
}

// elements yields the elements of a list, which is JSON that a decoder has checked, or
// absent. None is copied, and none is remembered.
func elements(list raw) iter.Seq[raw] {
	return func(yield func(raw) bool) {
		depth, begin := 0, 1
		for i, b := range quota.Unquoted(list) {
			switch {
			case depth == 1 && (b == ',' || b == ']'):
				element := raw(bytes.TrimSpace(list[begin:i]))
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

// identity is what no two manifests of a work have in common.
type identity struct{ apiVersion, kind, namespace, name string }

func (id identity) size() int64 {
	return int64(len(id.apiVersion) + len(id.kind) + len(id.namespace) + len(id.name))
}

// header is what is read of a manifest. As for whoever applies it, a name that is not
// a text is none.
type header struct {
	APIVersion text     `json:"apiVersion"`
	Kind       text     `json:"kind"`
	Metadata   metadata `json:"metadata"`
}

type metadata struct {
	Name         text `json:"name"`
	GenerateName text `json:"generateName"`
	Namespace    text `json:"namespace"`
}

// UnmarshalJSON reads an object; anything else has no names.
func (m *metadata) UnmarshalJSON(data []byte) error {
	type fields metadata
	var f fields
	if data[0] == '{' {
		if err := utiljson.Unmarshal(data, &f); err != nil {
			return err
		}
	}
	*m = metadata(f)
	return nil
}

// text is a JSON string, or "" for anything else.
type text string

// UnmarshalJSON reads a string.
func (t *text) UnmarshalJSON(data []byte) error {
	*t = ""
	if data[0] != '"' {
		return nil
	}
	return utiljson.Unmarshal(data, (*string)(t))
}

func identify(manifest raw) (identity, error) {
	var h header
	if manifest[0] != '{' || !manifest.decode(&h) || h.Kind == "" {
		return identity{}, errNotAnObject
	}
	if _, err := schema.ParseGroupVersion(string(h.APIVersion)); err != nil {
		return identity{}, errNotAnObject
	}
	if h.Metadata.Name == "" {
		return identity{}, errors.New("name must be set in manifest")
	}
	if h.Metadata.GenerateName != "" {
		return identity{}, errors.New("generateName must not be set in manifest")
	}
	return identity{string(h.APIVersion), string(h.Kind), string(h.Metadata.Namespace), string(h.Metadata.Name)}, nil
}
