// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
)

// determineOutcome reads whether an action was performed that has no outcome: another process
// started it, or this one got no final answer.
func (e *Engine) determineOutcome(ctx context.Context, p *plan) (*unstructured.Unstructured, error) {
	obj, err := p.get(ctx)
	switch {
	case apierrors.IsNotFound(err) && !isNotServed(err):
		obj = nil
	case refusalOf(err) != nil:
		return nil, fmt.Errorf("%w: %w", errUnknown, err) // the requester may not read it, or not any more
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUndecided, err)
	}
	switch {
	case p.request.action.Verb == wire.VerbDelete:
		return nil, p.resumeDelete(ctx, obj)
	case obj == nil:
		return nil, errUnknown
	case p.isWrittenBy(obj):
		return obj, nil
	case p.request.action.Verb == wire.VerbUpdate && p.object != nil && p.isUnchanged(obj):
		return e.update(ctx, p)
	default:
		return nil, errUnknown
	}
}

// resumeDelete deletes an object that still exists, if it has the recorded UID.
func (p *plan) resumeDelete(ctx context.Context, obj *unstructured.Unstructured) error {
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}
	return p.deleteObject(ctx)
}

// isWrittenBy reports whether this action has written an object.
func (p *plan) isWrittenBy(obj *unstructured.Unstructured) bool {
	return obj.GetAnnotations()[Annotation] == p.request.annotationValue()
}

// isUnchanged reports whether an object has the recorded version.
func (p *plan) isUnchanged(obj *unstructured.Unstructured) bool {
	return obj.GetUID() == p.entry.UID && obj.GetResourceVersion() == p.entry.Version
}
