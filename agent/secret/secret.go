// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Masked replaces a value.
const Masked = "***"

const kind = "Secret"

// IsSecret reports whether a resource is secrets of the core group.
func IsSecret(resource schema.GroupVersionResource) bool {
	return resource.GroupResource() == corev1.Resource("secrets")
}

// Mask masks the values of an object if it is a Secret, and those of all Secrets in it if
// it is a list. It changes the object in place.
func Mask(obj *unstructured.Unstructured) { mask(obj.Object) }

func mask(obj map[string]any) {
	u := unstructured.Unstructured{Object: obj}
	gvk := u.GroupVersionKind()
	core := gvk.Group == corev1.GroupName
	if core && gvk.Kind == kind {
		maskValues(obj)
		return
	}
	items, _ := obj["items"].([]any)
	for _, item := range items {
		switch fields, ok := item.(map[string]any); {
		case !ok:
		case core && gvk.Kind == kind+"List": // its items need not name their kind
			maskValues(fields)
		default:
			mask(fields)
		}
	}
}

// maskValues masks the values of a Secret.
func maskValues(obj map[string]any) {
	for _, field := range []string{"data", "stringData"} {
		switch values := obj[field].(type) {
		case map[string]any:
			for key := range values {
				values[key] = Masked
			}
		case nil:
		default:
			obj[field] = Masked // an API server would not store this Secret
		}
	}
	MaskMetadata(obj)
}

// MaskMetadata removes the annotation with the values of a Secret from its metadata, which
// is all that a Table has of an object.
func MaskMetadata(obj map[string]any) {
	metadata, _ := obj["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if _, ok := annotations[corev1.LastAppliedConfigAnnotation]; !ok {
		return
	}
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}
