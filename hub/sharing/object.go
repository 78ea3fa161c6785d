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

// object is what is kept of an object of the hub. It does not change.
type object struct {
	uid types.UID
	// version is the resourceVersion, and generation the number that it was when what is
	// published of the object changed last.
	version    string
	generation int64
	// raw is the content, nil where that is too large to be shared; size is its size.
	raw    []byte
	size   int
	hash   string
	labels labels.Set
	// annotated: the object has annotations, be they shared or not.
	deleting, annotated bool
}

// newObject makes what is kept of an object.
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

// reuse is the object where the one before was kept until now: what is the same of both is
// kept once, and what is published of them is the same, too.
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

// unlessEqual is the object, nil where it has just the content that was asked for, and where
// none was.
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

// versionNumber is that of a resourceVersion; 0 for one that is none.
func versionNumber(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// isNewer tells whether a version is later than another. Those that cannot be compared are
// taken as they come.
func isNewer(version, than string) bool {
	if than == "" {
		return true
	}
	c, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || c > 0
}
