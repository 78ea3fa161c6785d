// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/spokelet/spokelet/agent/secret"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	fieldManager = "spokelet-action"
	// maxConflicts is how often an update is made anew because somebody else wrote.
	maxConflicts = 10
)

// perform does the action. An error that is neither final nor unsent leaves open whether
// it was done.
func (e *Engine) perform(ctx context.Context, p *plan) (*unstructured.Unstructured, error) {
	switch p.request.action.Verb {
	case wire.VerbCreate:
		return e.create(ctx, p)
	case wire.VerbUpdate:
		return e.update(ctx, p)
	default:
		return nil, p.deleteObject(ctx)
	}
}

// create makes the object. What has no final answer is settled by looking, and so is
// AlreadyExists: a client may have sent the request twice.
func (e *Engine) create(ctx context.Context, p *plan) (*unstructured.Unstructured, error) {
	obj, err := p.objects.Create(ctx, p.object, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil || isUnsent(err) || refusalOf(err) != nil && !apierrors.IsAlreadyExists(err) {
		return obj, err
	}
	settled, unsettled := e.determineOutcome(ctx, p)
	switch {
	case unsettled == nil:
		return settled, nil
	case errors.Is(unsettled, errUndecided):
		return nil, unsettled
	case refusalOf(err) != nil:
		return nil, err // another object has the name
	default:
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
}

// update patches what the template has, at the version that the ledger recorded.
func (e *Engine) update(ctx context.Context, p *plan) (*unstructured.Unstructured, error) {
	for conflicts := 0; ; conflicts++ {
		obj, err := p.patch(ctx)
		if !apierrors.IsConflict(err) || conflicts == maxConflicts {
			return obj, asUndecided(err)
		}
		obj, err = p.readObject(ctx)
		if err != nil {
			return nil, asUndecided(err)
		}
		if p.isWrittenBy(obj) {
			return obj, nil // a client may have sent the patch twice
		}
		if err := e.log.updateEntry(ctx, p.entry); err != nil {
			return nil, fmt.Errorf("%w: %w", errUndecided, err)
		}
	}
}

// patch writes the template over the object: lists of the API's own kinds are merged by
// their keys.
func (p *plan) patch(ctx context.Context) (*unstructured.Unstructured, error) {
	next := p.object.DeepCopy()
	next.SetResourceVersion(p.entry.Version)
	raw, err := next.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTemplate, err)
	}
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if scheme.Scheme.Recognizes(next.GroupVersionKind()) {
		obj, err := p.objects.Patch(ctx, p.entry.Name, types.StrategicMergePatchType, raw, options)
		if !apierrors.IsUnsupportedMediaType(err) {
			return obj, p.maskPatch(err)
		}
	}
	obj, err := p.objects.Patch(ctx, p.entry.Name, types.MergePatchType, raw, options)
	return obj, p.maskPatch(err)
}

// maskPatch leaves out what an API server prints of a patch that it cannot read: all of
// it, the values of a Secret included.
func (p *plan) maskPatch(err error) error {
	var status *apierrors.StatusError
	if p.request.action.Secrets == wire.SecretsShown || !secret.IsSecret(p.entry.Resource) || !errors.As(err, &status) {
		return err
	}
	details := status.Status().Details
	if details == nil || !slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "patch" }) {
		return err
	}
	return apierrors.NewBadRequest("the template cannot be read as a Secret")
}

// deleteObject deletes the very object that was found.
func (p *plan) deleteObject(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	err := p.objects.Delete(ctx, p.entry.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &p.entry.UID},
	})
	if apierrors.IsNotFound(err) && !isNotServed(err) || apierrors.IsConflict(err) {
		return nil // somebody else was faster: that object is gone, or going
	}
	return asUndecided(err)
}

// asUndecided marks an error that leaves open whether the action was performed.
func asUndecided(err error) error {
	if err == nil || refusalOf(err) != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errUndecided, err)
}
