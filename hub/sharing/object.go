// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// object is an object of the hub. It is immutable.
type object struct {
	uid types.UID
	// version is the resourceVersion, and generation the number that it had when the published
	// part of the object changed last.
	version    string
	generation int64
	// raw is the content, nil if it is too large to be shared; size is its size.
	raw    []byte
	size   int
	hash   string
	labels labels.Set
	// annotated: the object has annotations, be they shared or not.
	deleting, annotated bool
}

// newObject returns the object of an unstructured one.
func newObject(obj *unstructured.Unstructured) (*object, error) {
	raw, err := sharedobject.Encode(sharedobject.Of(obj))
	if err != nil {
		return nil, err
	}
	o := &object{
		uid: obj.GetUID(), version: obj.GetResourceVersion(), generation: versionNumber(obj.GetResourceVersion()),
		raw: raw, size: len(raw), hash: sharedobject.Version(raw), labels: obj.GetLabels(),
		deleting: obj.GetDeletionTimestamp() != nil, annotated: sharedobject.Annotated(obj),
	}
	if o.size > wire.MaxSharedContent {
		o.raw = nil
	}
	return o, nil
}

// reuse returns the object with the memory of the one before, where both are equal, and with
// its generation, where the published part is.
func (o *object) reuse(before *object) *object {
	if before == nil || before.hash != o.hash {
		return o
	}
	out := *o
	out.raw, out.labels = before.raw, before.labels
	if before.uid == o.uid && before.deleting == o.deleting {
		out.generation = before.generation
	}
	return &out
}

// unlessEqual returns nil if the object has exactly the requested content, or none was
// requested.
func (o *object) unlessEqual(asked sharedobject.Content) *object {
	if o == nil || asked == nil {
		return nil
	}
	raw, err := sharedobject.Encode(asked)
	if err == nil && sharedobject.Version(raw) == o.hash {
		return nil
	}
	return o
}

// versionNumber returns the number of a resourceVersion; 0 for an invalid one.
func versionNumber(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// isNewer reports whether a version is later than another, or cannot be compared.
func isNewer(version, than string) bool {
	if than == "" {
		return true
	}
	c, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || c > 0
}
