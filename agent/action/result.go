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

	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/agent/secret"
	"github.com/spokelet/spokelet/api/wire"
)

var (
	// errUnknown is returned when nothing shows whether an action was performed.
	errUnknown = errors.New("outcome unknown: the action was interrupted, and is not repeated")
	// errUndecided is returned while the cluster could not be asked whether an action was
	// performed.
	errUndecided = errors.New("it is not known yet whether the action was performed")
	// errTemplate and errTarget are returned for an action that cannot be performed.
	errTemplate = errors.New("template cannot be used")
	errTarget   = errors.New("target cannot be used")
	// errNamespace has the text of the Work API.
	errNamespace = errors.New("namespace must be set")
)

// result returns what is sent to the hub.
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

// refusalOf returns what an error reports of an action that was not performed. It is nil if
// the error leaves that open, or another attempt may succeed.
func refusalOf(err error) *wire.Refusal {
	switch {
	case errors.Is(err, errUndecided):
		return nil
	case errors.Is(err, errUnknown):
		return wire.Refuse(wire.CauseUnknown, "", err.Error())
	case errors.Is(err, errTemplate), errors.Is(err, errTarget), errors.Is(err, errNamespace):
		return wire.Refuse(wire.CauseTarget, "", err.Error())
	default:
		return refusals.Of(err)
	}
}

// asUnknown returns the error of an action whose outcome cannot be determined, because the API
// server keeps failing.
func asUnknown(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fmt.Errorf("%w: %s", errUnknown, status.Status().Message)
	}
	return fmt.Errorf("%w: %s", errUnknown, err.Error())
}

// isUnsent reports whether an error shows that a request had no effect, and may succeed in
// another attempt.
func isUnsent(err error) bool {
	var dial *net.OpError
	return apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) || errors.As(err, &dial) && dial.Op == "dial"
}

// isNotServed reports whether an API server does not serve a path, rather than has no such
// object.
func isNotServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
