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

// execute brings an action to its outcome: by performing it, or by what the ledger says.
// After an error it is to be tried again.
func (e *Engine) execute(ctx context.Context, r request) (wire.ActionResult, error) {
	known, err := e.ledger.find(ctx, r)
	switch {
	case err != nil:
		return wire.ActionResult{}, err
	case known == nil:
		return e.begin(ctx, r)
	case known.Ended != nil:
		return e.recall(ctx, r, known), nil
	default:
		return e.resume(ctx, r, known)
	}
}

// begin executes an action that the ledger does not have. A refusal before anything is
// written is recorded nowhere: the next try may end in another way, and is the first.
func (e *Engine) begin(ctx context.Context, r request) (wire.ActionResult, error) {
	p, err := e.prepare(ctx, r)
	if unserved(err) {
		e.relearn() // the version that was found may be no more
		p, err = e.prepare(ctx, r)
	}
	if err != nil {
		if refusal := e.refuse(r, err); refusal != nil {
			return p.result(nil, refusal), nil
		}
		return wire.ActionResult{}, err
	}
	p.entry.Warnings = p.warnings.get()
	if err := e.ledger.start(ctx, r, p.entry); err != nil {
		return wire.ActionResult{}, err
	}
	obj, err := e.perform(ctx, p)
	return e.conclude(ctx, p, obj, err)
}

// prepare plans an action, and reads what is there where something has to be. The plan is
// never nil.
func (e *Engine) prepare(ctx context.Context, r request) (*plan, error) {
	p, err := e.draft(r)
	if err == nil {
		err = e.connect(p)
	}
	if err == nil && r.action.Verb != wire.VerbCreate {
		_, err = p.read(ctx)
	}
	return p, err
}

// refuse returns nil if an error, of a time when nothing was written yet, is worth another
// try.
func (e *Engine) refuse(r request, err error) *wire.Refusal {
	if e.persistent(r, err) {
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonInternalError, err.Error())
	}
	return refusalOf(err)
}

// recall publishes an outcome again, with the object as it is now. What the requester
// cannot read, or not at once, is left out.
func (e *Engine) recall(ctx context.Context, r request, known *entry) wire.ActionResult {
	p := planOf(r, known)
	if known.Refusal != nil || r.action.Verb == wire.VerbDelete || e.connect(p) != nil {
		return p.result(nil, known.Refusal)
	}
	obj, err := p.get(ctx)
	if err != nil {
		obj = nil
	}
	return p.result(obj, nil)
}

// resume goes on with an action that was started and has no outcome in the ledger.
func (e *Engine) resume(ctx context.Context, r request, known *entry) (wire.ActionResult, error) {
	progress := e.ledger.progress(known)
	if progress.concluded {
		return e.record(ctx, planOf(r, known), nil, progress.refusal)
	}
	p, planned := e.restore(r, known)
	if planned != nil && refusalOf(planned) == nil {
		return wire.ActionResult{}, planned
	}
	if !progress.performed && planned != nil { // nothing was written
		return e.conclude(ctx, p, nil, planned)
	}
	err := e.connect(p)
	if progress.performed {
		if err != nil { // the requester is let in no more
			return e.conclude(ctx, p, nil, fmt.Errorf("%w: %w", errUnknown, err))
		}
		obj, err := e.settle(ctx, p)
		return e.conclude(ctx, p, obj, err)
	}
	if err != nil {
		return e.conclude(ctx, p, nil, err)
	}
	e.ledger.performs(known)
	obj, err := e.perform(ctx, p)
	return e.conclude(ctx, p, obj, err)
}

// restore plans anew what an entry records. The plan has no object if that fails.
func (e *Engine) restore(r request, known *entry) (*plan, error) {
	p := planOf(r, known)
	if r.action.Verb == wire.VerbDelete {
		return p, nil
	}
	drafted, err := e.draft(r)
	if err != nil {
		return p, err
	}
	p.object = drafted.object
	p.object.SetName(known.Name) // it may have been generated
	p.object.SetNamespace(known.Namespace)
	return p, nil
}

// conclude records the outcome that an object or an error is.
func (e *Engine) conclude(ctx context.Context, p *plan, obj *unstructured.Unstructured, err error) (wire.ActionResult, error) {
	if unserved(err) {
		e.relearn()
	}
	if e.persistent(p.request, err) {
		err = abandoned(err)
	}
	refusal := refusalOf(err)
	if err != nil && refusal == nil {
		// An undecided error may be of the look after a write that was sent.
		if unsent(err) && !errors.Is(err, errUndecided) {
			e.ledger.unsent(p.entry)
		}
		return wire.ActionResult{}, err
	}
	return e.record(ctx, p, obj, refusal)
}

func (e *Engine) record(ctx context.Context, p *plan, obj *unstructured.Unstructured, refusal *wire.Refusal) (wire.ActionResult, error) {
	p.entry.Warnings = p.warnings.get()
	if err := e.ledger.end(ctx, p.entry, refusal); err != nil {
		return wire.ActionResult{}, err
	}
	if obj == nil {
		return e.recall(ctx, p.request, p.entry), nil
	}
	return p.result(obj, refusal), nil
}
