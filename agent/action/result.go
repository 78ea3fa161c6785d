// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/agent/secret"
	"github.com/spokelet/spokelet/api/wire"
)

var (
	// errUnknown: nothing tells whether an action was performed.
	errUnknown = errors.New("outcome unknown: the action was interrupted, and is not repeated")
	// errUndecided: the cluster is still to be asked whether an action was performed.
	errUndecided = errors.New("it is not known yet whether the action was performed")
	// errTemplate and errTarget: an action is none that can be performed.
	errTemplate = errors.New("template cannot be used")
	errTarget   = errors.New("target cannot be used")
	// errNamespace has the words of the Work API.
	errNamespace = errors.New("namespace must be set")
)

// accessError is the kube door's refusal of a requester.
type accessError struct{ cause error }

func (e *accessError) Error() string { return e.cause.Error() }
func (e *accessError) Unwrap() error { return e.cause }

// result is what the hub is sent.
func (p *plan) result(obj *unstructured.Unstructured, refusal *wire.Refusal) wire.ActionResult {
	r := wire.ActionResult{Refusal: refusal}
	for _, w := range p.warnings.get() {
		r.AddWarning(w)
	}
	if obj == nil || refusal != nil || p.request.action.Verb == wire.VerbDelete {
		return r
	}
	unstructured.RemoveNestedField(obj.Object, "metadata", "managedFields")
	if p.request.action.Secrets != wire.SecretsShown {
		secret.Mask(obj)
	}
	raw, err := json.Marshal(obj.Object)
	if err != nil || len(raw) > p.request.action.MaxBytes {
		r.Omitted = true
		return r
	}
	r.Result = raw
	return r
}

// refusalOf returns what an error says of an action that was not performed; nil where it
// leaves that open, or is worth another try.
func refusalOf(err error) *wire.Refusal {
	var status apierrors.APIStatus
	var door *accessError
	switch {
	case err == nil, errors.Is(err, errUndecided):
		return nil
	case errors.Is(err, errUnknown):
		return wire.Refuse(wire.CauseUnknown, "", err.Error())
	case errors.Is(err, mapping.ErrNoMatch), errors.Is(err, mapping.ErrAmbiguous),
		errors.Is(err, errTemplate), errors.Is(err, errTarget), errors.Is(err, errNamespace):
		return wire.Refuse(wire.CauseTarget, "", err.Error())
	case errors.As(err, &door):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, err.Error())
	case errors.As(err, &status) && isFinal(status.Status().Code):
		s := status.Status()
		return wire.Refuse(wire.CauseRequest, s.Reason, messageOf(s))
	default:
		return nil
	}
}

// asUnknown is the error of an action whose outcome cannot be found out, because the API
// server goes on failing.
func asUnknown(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Errorf("%w: %s", errUnknown, messageOf(status.Status()))
	}
	return fmt.Errorf("%w: %s", errUnknown, err.Error())
}

// isFinal reports whether a code says that nothing was done, and that another try would end
// in the same way.
func isFinal(code int32) bool {
	switch code {
	case 401, 408, 429: // the agent's own matter, or it passes
		return false
	default:
		return code >= 400 && code < 500
	}
}

func messageOf(s metav1.Status) string {
	if s.Message == "" {
		return fmt.Sprintf("the API server refused with code %d", s.Code)
	}
	return s.Message
}

// isUnsent reports whether an error says that a request had no effect, and is worth another
// try.
func isUnsent(err error) bool {
	var dial *net.OpError
	return apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) || errors.As(err, &dial) && dial.Op == "dial"
}

// isNotServed reports whether an API server has no such path, rather than no such object.
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
