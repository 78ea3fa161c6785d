// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package refusals converts the errors of a request that was made in the cluster, for a user
// of the hub, to what the hub is told.
package refusals

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
)

// AccessError is returned when the kube door refuses a requester.
type AccessError struct{ Err error }

// Error is the text of the door's error.
func (e *AccessError) Error() string { return e.Err.Error() }

// Unwrap returns the door's error.
func (e *AccessError) Unwrap() error { return e.Err }

// Of returns the refusal that an error is. It is nil for an error that is not about the
// request, such as an API server that cannot be reached, or rejects the agent's own
// credential: another attempt may succeed.
func Of(err error) *wire.Refusal {
	var status apierrors.APIStatus
	var access *AccessError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &access):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, err.Error())
	case errors.Is(err, mapping.ErrNoMatch):
		return wire.Refuse(wire.CauseTarget, metav1.StatusReasonNotFound, err.Error())
	case errors.Is(err, mapping.ErrAmbiguous):
		return wire.Refuse(wire.CauseTarget, metav1.StatusReasonInvalid, err.Error())
	case errors.As(err, &status) && IsFinal(status.Status().Code):
		return wire.Refuse(wire.CauseRequest, status.Status().Reason, status.Status().Message)
	default:
		return nil
	}
}

// IsFinal reports whether a status code of the API server is about the request, which had no
// effect and would be refused again. The others pass: the server is busy or has failed, the
// agent's credential has expired, or the version to resume a watch from is too old.
func IsFinal(code int32) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
