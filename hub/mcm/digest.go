// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/cached"
	"github.com/spokelet/spokelet/hub/requester"
)

// invalidDigest is the digest of what has none.
const invalidDigest = "none"

// AnnotationDigest is that of a result, on objects in the hub's cache alone.
const AnnotationDigest = "spokelet.io/cached-result-digest"

// Digest returns a digest of a result that ends with its size in bytes. An API server may write numbers
// and characters of a JSON in another way than it got them.
func Digest(raw []byte) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	canonical, err := reencode(raw)
	if err == nil && bytes.Contains(canonical, []byte("-0")) {
		canonical, err = reencode(canonical) // a negative zero is written as one, and not read as one
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errInvalidJSON, err)
	}
	sum := sha256.Sum256(canonical)
	return fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:]), len(canonical)), nil
}

// digestSize is the size in bytes of the result of a digest.
func digestSize(digest string) int {
	_, size, _ := strings.Cut(digest, "-")
	n, _ := strconv.Atoi(size) // 0 for no result
	return n
}

// reencode makes JSON of the values that an API server reads from one; it keeps large
// integers.
func reencode(raw []byte) ([]byte, error) {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// errInvalidJSON is of results that an API server would not read.
var errInvalidJSON = errors.New("result is no JSON")

// Strip takes from an object what the hub does not read, and what is too large to be kept,
// before its cache keeps it: the result and large templates, of which digests stay, and
// copies of the object. It is a cache.TransformFunc, which may change what it is given.
func Strip(in any) (any, error) {
	obj, ok := in.(client.Object)
	if !ok || cached.Seen(obj) {
		return in, nil
	}
	stripSpec(obj)
	stripResult(obj)
	cached.Metadata(obj, keptMetadata)
	return obj, nil
}

// keptMetadata are the labels and annotations that the hub reads.
var keptMetadata = slices.Concat(requester.MCM.All(), requester.ACM.All(), []string{
	AnnotationDigest, mcmv1alpha1.AnnotationOwners, mcmv1alpha1.AnnotationOwnerUID,
	mcmv1alpha1.LabelCluster, mcmv1alpha1.LabelWorkSet, mcmv1alpha1.LabelResourceView,
})

// stripResult leaves the digest of the result.
func stripResult(obj client.Object) {
	annotations := obj.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	digest, err := Digest(removeResult(obj))
	if err != nil {
		digest = invalidDigest // a cache whose transformation fails is never filled
	}
	delete(annotations, AnnotationDigest) // nobody else's word counts
	if digest != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationDigest] = digest
		obj.SetAnnotations(annotations)
	}
}

func removeResult(obj client.Object) (raw []byte) {
	switch o := obj.(type) {
	case *mcmv1alpha1.Work:
		if o.Status.Result != nil {
			raw, o.Status.Result = o.Status.Result.Raw, nil
		}
	case *viewv1beta1.ManagedClusterView:
		raw, o.Status.Result = o.Status.Result.Raw, runtime.RawExtension{}
	case *actionv1beta1.ManagedClusterAction:
		raw, o.Status.Result = o.Status.Result.Raw, runtime.RawExtension{}
	}
	return raw
}
