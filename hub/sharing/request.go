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

// request is one write for a cluster. It is executed without a lock: of share, scope and
// writeRequest it reads only what does not change.
type request struct {
	share  *share
	scope  *scope
	record *writeRequest
	write  *write
	name   string
	// object is what the write is based on; nil for a creation.
	object *object
	to     sharedobject.Content
	body   wire.Share
}

// errOutdated is returned where the API server has another version of the object.
var errOutdated = errors.New("the object is another by now")

func labelsOf(c sharedobject.Content) labels.Set { return c.Labels() }

func (j *request) version() string {
	if j.object == nil {
		return ""
	}
	return j.object.version
}

// result returns the object after a request that was done; nil where it is as requested.
func (j *request) result(made *object) *object {
	if made == nil {
		made = j.object // there was nothing to do
	}
	return made.unlessEqual(j.to)
}

func (j *request) client() dynamic.ResourceInterface {
	return j.scope.feed.client.Namespace(j.scope.namespace)
}

// do sends the request, and returns the object if the response has it.
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
		// A patch of an absent field is refused before versions are compared.
		return j.recheck(ctx, err)
	}
	return newObjectOrError(obj, err)
}

// patch returns the JSON patch of the write, and the subresource that it is for.
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

// recheck reads the object after a refusal, which stands if the object has not changed.
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

// outcome is the result of a write, as far as the API server's response tells.
type outcome int

const (
	outcomeDone outcome = iota
	// outcomeRefused: every retry would be refused, too.
	outcomeRefused
	// outcomeOutdated: there is another version of the object, and nothing was done.
	outcomeOutdated
	// outcomeUnknown: the write may have been done, or may still be.
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
