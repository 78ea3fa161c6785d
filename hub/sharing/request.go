// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/sharedobject"
)

// request is one request for a cluster. It is made without a lock: of share, scope and record
// it reads what does not change.
type request struct {
	share  *share
	scope  *scope
	record *writeRequest
	write  *write
	name   string
	// object is what the write was made from; nil creates it.
	object *object
	to     sharedobject.Content
	body   wire.Share
}

// errOutdated: the API server has another version of the object than we.
var errOutdated = errors.New("the object is another by now")

func labelsOf(c sharedobject.Content) labels.Set { return c.Labels() }

func (j *request) version() string {
	if j.object == nil {
		return ""
	}
	return j.object.version
}

// result is what a request left that was done, nil where that is as it was asked for.
func (j *request) result(made *object) *object {
	if made == nil {
		made = j.object // there was nothing to do
	}
	return made.unlessEqual(j.to)
}

func (j *request) client() dynamic.ResourceInterface {
	return j.scope.feed.client.Namespace(j.scope.namespace)
}

// do makes the request, and returns what the object is now if the API server says so.
func (j *request) do(ctx context.Context) (*object, error) {
	switch {
	case j.write.Part == wire.PartDeletion:
		return nil, j.delete(ctx)
	case j.object == nil:
		return j.create(ctx)
	}
	patch, sub, err := j.patch()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error()) // it would be the same each time
	}
	if patch == nil {
		return nil, nil
	}
	obj, err := j.client().Patch(ctx, j.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, sub...)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		// A patch of what is not there is refused before versions are compared.
		return j.recheck(ctx, err)
	}
	return newObjectOrError(obj, err)
}

// patch is what makes the object as the write has it, and the subresource that it is for.
func (j *request) patch() (patch []byte, sub []string, err error) {
	from, err := sharedobject.Decode(j.object.raw)
	if err != nil {
		return nil, nil, fmt.Errorf("object %s: %w", j.name, err)
	}
	t := sharedobject.Target{
		ResourceVersion: j.object.version, Annotated: j.object.annotated, Subresource: j.body.StatusSubresource,
	}
	if j.write.Part == wire.PartStatus {
		patch, err = t.StatusPatch(from, j.to)
		return patch, []string{"status"}, err
	}
	patch, err = t.Patch(from, j.to)
	return patch, nil, err
}

func (j *request) create(ctx context.Context) (*object, error) {
	to := j.to
	if j.body.StatusSubresource {
		to = to.WithStatus(nil)
	}
	apiVersion := j.body.Group + "/" + j.body.Version
	obj, err := j.client().Create(ctx, to.Object(apiVersion, j.body.Kind, j.scope.namespace, j.name), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return j.recheck(ctx, err)
	}
	return newObjectOrError(obj, err)
}

func (j *request) delete(ctx context.Context) error {
	uid, version := j.object.uid, j.object.version
	return j.client().Delete(ctx, j.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
}

// recheck reads the object, and says whether it is the one that the request was made
// for: then the refusal stands.
func (j *request) recheck(ctx context.Context, refusal error) (*object, error) {
	obj, err := j.client().Get(ctx, j.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, errOutdated
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOutdated, err)
	}
	if j.object != nil && obj.GetResourceVersion() == j.object.version {
		return nil, refusal
	}
	kept, err := newObject(obj)
	if err != nil {
		return nil, err
	}
	return kept, errOutdated
}

func newObjectOrError(obj *unstructured.Unstructured, err error) (*object, error) {
	if err != nil {
		return nil, err
	}
	return newObject(obj)
}

// outcome is what an answer of the API server says of a write.
type outcome int

const (
	outcomeDone outcome = iota
	// outcomeRefused: the same request would meet the same each time.
	outcomeRefused
	// outcomeOutdated: there is another version of the object, and nothing was done.
	outcomeOutdated
	// outcomeUnknown: it may have been done, or may be later.
	outcomeUnknown
)

func (j *request) classify(err error) outcome {
	switch {
	case err == nil:
		return outcomeDone
	case errors.Is(err, errOutdated), apierrors.IsConflict(err):
		return outcomeOutdated
	case apierrors.IsNotFound(err) && j.object != nil:
		return outcomeOutdated
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsRequestEntityTooLargeError(err), apierrors.IsMethodNotSupported(err), apierrors.IsUnsupportedMediaType(err):
		return outcomeRefused
	}
	return outcomeUnknown
}
