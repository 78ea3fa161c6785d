// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/api/wire"
)

// execute performs an action, or returns the outcome in the action log. After an error it is to
// be retried.
func (e *Engine) execute(ctx context.Context, r request) (wire.ActionResult, error) {
	known, err := e.log.getEntry(ctx, r)
	switch {
	case err != nil:
		return wire.ActionResult{}, err
	case known == nil:
		return e.executeNew(ctx, r)
	case known.Ended != nil:
		return e.recordedResult(ctx, r, known), nil
	default:
		return e.resume(ctx, r, known)
	}
}

// executeNew executes an action without an entry. A refusal before the first write is not
// recorded: the next attempt may succeed, and is the first.
func (e *Engine) executeNew(ctx context.Context, r request) (wire.ActionResult, error) {
	p, err := e.prepare(ctx, r)
	if isNotServed(err) {
		e.refreshDiscovery() // the version may have been removed
		p, err = e.prepare(ctx, r)
	}
	if err != nil {
		if refusal := e.refuse(r, err); refusal != nil {
			return p.result(nil, refusal), nil
		}
		return wire.ActionResult{}, err
	}
	p.entry.Warnings = p.warnings.get()
	if err := e.log.createEntry(ctx, r, p.entry); err != nil {
		return wire.ActionResult{}, err
	}
	obj, err := e.perform(ctx, p)
	return e.recordOutcome(ctx, p, obj, err)
}

// prepare plans an action, and reads the object that it updates or deletes. The plan is never
// nil.
func (e *Engine) prepare(ctx context.Context, r request) (*plan, error) {
	p, err := e.buildPlan(r)
	if err == nil {
		err = e.connect(p)
	}
	if err == nil && r.action.Verb != wire.VerbCreate {
		_, err = p.readObject(ctx)
	}
	return p, err
}

// refuse returns nil if an error, before the first write, may be retried.
func (e *Engine) refuse(r request, err error) *wire.Refusal {
	if e.isPersistent(r, err) {
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonInternalError, err.Error())
	}
	return refusalOf(err)
}

// recordedResult returns a recorded outcome, with the present object if the requester can read it.
func (e *Engine) recordedResult(ctx context.Context, r request, known *logEntry) wire.ActionResult {
	p := newPlan(r, known)
	if known.Refusal != nil || r.action.Verb == wire.VerbDelete || e.connect(p) != nil {
		return p.result(nil, known.Refusal)
	}
	obj, err := p.get(ctx)
	if err != nil {
		obj = nil
	}
	return p.result(obj, nil)
}

// resume continues an action that was started and has no outcome in the action log.
func (e *Engine) resume(ctx context.Context, r request, known *logEntry) (wire.ActionResult, error) {
	progress := e.log.progress(known)
	if progress.concluded {
		return e.record(ctx, newPlan(r, known), nil, progress.refusal)
	}
	p, planned := e.restorePlan(r, known)
	if planned != nil && refusalOf(planned) == nil {
		return wire.ActionResult{}, planned
	}
	if !progress.performed && planned != nil { // nothing was written
		return e.recordOutcome(ctx, p, nil, planned)
	}
	err := e.connect(p)
	if progress.performed {
		if err != nil { // the requester is not authorized any more
			return e.recordOutcome(ctx, p, nil, fmt.Errorf("%w: %w", errUnknown, err))
		}
		obj, err := e.determineOutcome(ctx, p)
		return e.recordOutcome(ctx, p, obj, err)
	}
	if err != nil {
		return e.recordOutcome(ctx, p, nil, err)
	}
	e.log.setPerformed(known)
	obj, err := e.perform(ctx, p)
	return e.recordOutcome(ctx, p, obj, err)
}

// restorePlan plans a recorded action again. The plan has no object if that fails.
func (e *Engine) restorePlan(r request, known *logEntry) (*plan, error) {
	p := newPlan(r, known)
	if r.action.Verb == wire.VerbDelete {
		return p, nil
	}
	drafted, err := e.buildPlan(r)
	if err != nil {
		return p, err
	}
	p.object = drafted.object
	p.object.SetName(known.Name) // it may have been generated
	p.object.SetNamespace(known.Namespace)
	return p, nil
}

// recordOutcome records an object or an error as the outcome.
func (e *Engine) recordOutcome(ctx context.Context, p *plan, obj *unstructured.Unstructured, err error) (wire.ActionResult, error) {
	if isNotServed(err) {
		e.refreshDiscovery()
	}
	if e.isPersistent(p.request, err) {
		err = asUnknown(err)
	}
	refusal := refusalOf(err)
	if err != nil && refusal == nil {
		// An undecided error may be of a read after a write that was sent.
		if isUnsent(err) && !errors.Is(err, errUndecided) {
			e.log.setUnsent(p.entry)
		}
		return wire.ActionResult{}, err
	}
	return e.record(ctx, p, obj, refusal)
}

func (e *Engine) record(ctx context.Context, p *plan, obj *unstructured.Unstructured, refusal *wire.Refusal) (wire.ActionResult, error) {
	p.entry.Warnings = p.warnings.get()
	if err := e.log.finishEntry(ctx, p.entry, refusal); err != nil {
		return wire.ActionResult{}, err
	}
	if obj == nil {
		return e.recordedResult(ctx, p.request, p.entry), nil
	}
	return p.result(obj, refusal), nil
}
