// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cached bounds what the hub's cache keeps of an object whose size is up to whoever
// writes it: metadata here, and specs as far as this package says. What more there is stays
// with the API server, and is read when it is needed.
package cached

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// MaxSpec is how large a spec may be to be kept, as JSON and beside templates.
	MaxSpec = 8 << 10
	// MaxKept is how large it may be with the templates that are kept.
	MaxKept = 3 * MaxSpec
	// maxMetadata is how large labels and annotations of an object may be to be kept. Those
	// that the spec of a WorkSet gives its Works fit.
	maxMetadata = MaxSpec + 2<<10
)

// Seen marks an object, and reports whether it had been marked: an informer transforms what a
// first list streams when it comes, and again when it puts it into its queue. No API server
// writes an empty list of managed fields, so that it says that the object is ours.
func Seen(obj client.Object) bool {
	if managed := obj.GetManagedFields(); managed != nil && len(managed) == 0 {
		return true
	}
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{})
	return false
}

// AnnotationDropped is how many bytes of labels and annotations are not kept, on objects in
// the hub's cache alone.
const AnnotationDropped = "spokelet.io/cached-dropped"

// Metadata takes from an object owners and finalizers, and labels and annotations if they
// are too large to be kept, but for those that are named.
func Metadata(obj client.Object, keep []string) {
	obj.SetOwnerReferences(nil)
	obj.SetFinalizers(nil)
	annotations, labels := obj.GetAnnotations(), obj.GetLabels()
	delete(annotations, AnnotationDropped) // nobody else's word counts
	size := sizeWithout(annotations, keep) + sizeWithout(labels, keep)
	if size <= maxMetadata {
		return
	}
	annotations = selectKeys(annotations, keep)
	annotations[AnnotationDropped] = strconv.Itoa(size)
	obj.SetAnnotations(annotations)
	obj.SetLabels(selectKeys(labels, keep))
}

// Dropped is how many bytes of labels and annotations of an object are not kept.
func Dropped(obj client.Object) int {
	n, _ := strconv.Atoi(obj.GetAnnotations()[AnnotationDropped]) // 0 where there is none
	return n
}

func sizeWithout(all map[string]string, keep []string) (size int) {
	for key, value := range all {
		if !slices.Contains(keep, key) {
			size += len(key) + len(value)
		}
	}
	return size
}

func selectKeys(all map[string]string, keep []string) map[string]string {
	kept := map[string]string{}
	for _, key := range keep {
		if value, ok := all[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// Size is that of a part of an object as JSON; of what has none it is too much.
func Size(part any) int {
	raw, err := json.Marshal(part)
	if err != nil {
		return MaxKept + 1
	}
	return len(raw)
}

// errStale: the cache has another version of an object than the API server.
var errStale = errors.New("it has changed")

// Read reads whole what the cache has seen of an object, from the API server. It fails if the
// API server has another object, or another generation of its spec.
func Read(ctx context.Context, live client.Reader, seen, whole client.Object) error {
	err := live.Get(ctx, client.ObjectKeyFromObject(seen), whole)
	if err == nil && (whole.GetUID() != seen.GetUID() || whole.GetGeneration() != seen.GetGeneration()) {
		err = errStale
	}
	return err
}
