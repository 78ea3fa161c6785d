// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedobject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

const (
	keyMetadata    = "metadata"
	keyLabels      = "labels"
	keyAnnotations = "annotations"
	keyStatus      = "status"
)

// private are the annotations that belong to one side.
var private = map[string]bool{corev1.LastAppliedConfigAnnotation: true}

// ErrInvalid: a document is no content.
var ErrInvalid = errors.New("invalid content of a shared object")

// Content is what of an object is shared.
type Content map[string]any

// Of is the content of an object, whose fields it shares.
func Of(obj *unstructured.Unstructured) Content {
	out := Content{}
	for key, value := range obj.Object {
		switch key {
		case "apiVersion", "kind", keyMetadata:
		default:
			out[key] = value
		}
	}
	meta := map[string]any{}
	setShared(meta, keyLabels, obj.GetLabels())
	setShared(meta, keyAnnotations, obj.GetAnnotations())
	if len(meta) > 0 {
		out[keyMetadata] = meta
	}
	return out
}

// Annotated reports whether an object has any annotation, shared or not.
func Annotated(obj *unstructured.Unstructured) bool { return len(obj.GetAnnotations()) > 0 }

// setShared keeps the shared ones of labels or annotations, if there are any.
func setShared(meta map[string]any, key string, of map[string]string) {
	out := make(map[string]any, len(of))
	for k, v := range of {
		if key == keyLabels || !private[k] {
			out[k] = v
		}
	}
	if len(out) > 0 {
		meta[key] = out
	}
}

// Encode is the JSON of a content: equal contents have the same bytes.
func Encode(c Content) ([]byte, error) {
	raw, err := json.Marshal(map[string]any(c))
	if err != nil {
		return nil, fmt.Errorf("encode content: %w: %w", ErrInvalid, err)
	}
	return raw, nil
}

// Decode reads what Encode wrote, also where a peer says that it did.
func Decode(raw []byte) (Content, error) {
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("decode content: %w: %w", ErrInvalid, err)
	}
	if m == nil {
		return nil, fmt.Errorf("content is null: %w", ErrInvalid)
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if _, ok := m[key]; ok {
			return nil, fmt.Errorf("content with %s: %w", key, ErrInvalid)
		}
	}
	if err := validateMetadata(m); err != nil {
		return nil, err
	}
	return m, nil
}

func validateMetadata(m map[string]any) error {
	value, ok := m[keyMetadata]
	if !ok {
		return nil
	}
	meta, ok := value.(map[string]any)
	if !ok || len(meta) == 0 {
		return fmt.Errorf("metadata is %T: %w", value, ErrInvalid)
	}
	for key, value := range meta {
		if key != keyLabels && key != keyAnnotations {
			return fmt.Errorf("content with metadata.%.64s: %w", key, ErrInvalid)
		}
		if err := validateStrings(key, value); err != nil {
			return err
		}
	}
	return nil
}

func validateStrings(key string, value any) error {
	m, ok := value.(map[string]any)
	if !ok || len(m) == 0 {
		return fmt.Errorf("metadata.%s is %T: %w", key, value, ErrInvalid)
	}
	for k, v := range m {
		if _, ok := v.(string); !ok {
			return fmt.Errorf("metadata.%s: value of %.64q is %T: %w", key, k, v, ErrInvalid)
		}
		if key == keyAnnotations && private[k] {
			return fmt.Errorf("annotation %s is not shared: %w", k, ErrInvalid)
		}
	}
	return nil
}

// Version names a content by its JSON.
func Version(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Labels of a content.
func (c Content) Labels() map[string]string {
	labels, _, _ := unstructured.NestedStringMap(c, keyMetadata, keyLabels)
	return labels
}

// Status of a content; false when it has none.
func (c Content) Status() (any, bool) {
	status, ok := c[keyStatus]
	return status, ok
}

// WithStatus is the content with the status of another, or without if that has none.
func (c Content) WithStatus(of map[string]any) Content {
	out := make(Content, len(c)+1)
	for key, value := range c {
		if key != keyStatus {
			out[key] = value
		}
	}
	if status, ok := of[keyStatus]; ok {
		out[keyStatus] = status
	}
	return out
}

// Object is a new object of a content.
func (c Content) Object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	obj := make(map[string]any, len(c)+3)
	meta := map[string]any{"namespace": namespace, "name": name}
	maps.Copy(obj, c)
	if shared, ok := c[keyMetadata].(map[string]any); ok {
		maps.Copy(meta, shared)
	}
	obj["apiVersion"], obj["kind"], obj[keyMetadata] = apiVersion, kind, meta
	return &unstructured.Unstructured{Object: obj}
}
