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
	// maxConflicts bounds the repetitions of an update after conflicts.
	maxConflicts = 10
)

// perform performs an action. An error that is neither final nor unsent leaves open whether it
// was performed.
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

// create creates the object. Without a final answer it determines the outcome by reading, also
// after AlreadyExists: a client may have sent the request twice.
func (e *Engine) create(ctx context.Context, p *plan) (*unstructured.Unstructured, error) {
	obj, err := p.objects.Create(ctx, p.object, metav1.CreateOptions{FieldManager: fieldManager})
	if err == nil || isUnsent(err) || refusalOf(err) != nil && !apierrors.IsAlreadyExists(err) {
		return obj, err
	}
	found, outcomeErr := e.determineOutcome(ctx, p)
	switch {
	case outcomeErr == nil:
		return found, nil
	case errors.Is(outcomeErr, errUndecided):
		return nil, outcomeErr
	case refusalOf(err) != nil:
		return nil, err // another object has the name
	default:
		return nil, fmt.Errorf("%w: %w", errUnknown, err)
	}
}

// update patches the fields of the template, at the recorded version.
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

// patch merges the template into the object: lists of built-in kinds by their keys.
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

// maskPatch replaces the error of an API server that cannot decode a patch: it quotes all of
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

// deleteObject deletes the object with the recorded UID.
func (p *plan) deleteObject(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	err := p.objects.Delete(ctx, p.entry.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &p.entry.UID},
	})
	if apierrors.IsNotFound(err) && !isNotServed(err) || apierrors.IsConflict(err) {
		return nil // the object was deleted, or replaced, by somebody else
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
