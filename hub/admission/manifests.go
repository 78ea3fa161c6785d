// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// manifests are those of a work. Of more than the limit allows the size is
// counted and nothing is kept.
type manifests struct {
	most int // bytes that are kept
	kept []json.RawMessage
	size int // of all, in the count of Open Cluster Management
}

// UnmarshalJSON reads one manifest after the other.
func (m *manifests) UnmarshalJSON(data []byte) error {
	m.kept, m.size = nil, 0
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if t, err := decoder.Token(); err != nil || t != json.Delim('[') {
		return errors.New("manifests are not a list")
	}
	for decoder.More() {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return fmt.Errorf("manifest: %w", err)
		}
		m.add(raw)
	}
	return nil
}

func (m *manifests) add(raw json.RawMessage) {
	// What Manifest.Size counts: the bytes, and what their encoding costs.
	m.size += (&runtime.RawExtension{Raw: raw}).Size()
	if m.size > m.most {
		m.kept = nil
		return
	}
	m.kept = append(m.kept, raw)
}

// check holds the manifests to the rules that need no one to be asked.
func (m *manifests) check(limit int) error {
	if m.size == 0 {
		return errors.New("manifests should not be empty")
	}
	if m.size > limit {
		return fmt.Errorf("the size of manifests is %d bytes which exceeds the %d limit", m.size, limit)
	}
	seen := make(map[identity]struct{}, len(m.kept))
	for _, raw := range m.kept {
		id, err := identify(raw)
		if err != nil {
			return err
		}
		if _, twice := seen[id]; twice {
			return fmt.Errorf("duplicate manifest for resource %s/%s with resource type %s.%s", id.namespace, id.name, id.apiVersion, id.kind)
		}
		seen[id] = struct{}{}
	}
	return nil
}

// identity is what no two manifests of a work have in common.
type identity struct{ apiVersion, kind, namespace, name string }

func identify(raw json.RawMessage) (identity, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return identity{}, fmt.Errorf("manifest is not an object: %w", err)
	}
	if obj.GetName() == "" {
		return identity{}, errors.New("name must be set in manifest")
	}
	if obj.GetGenerateName() != "" {
		return identity{}, errors.New("generateName must not be set in manifest")
	}
	return identity{obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName()}, nil
}
