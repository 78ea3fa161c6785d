// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/spokelet/spokelet/agent/pod/shape"
)

// Reasons of a [RefusedError], besides those of shape.RefusedError.
const (
	// ReasonNamespaceNotAllowed: the spoke's owner keeps the namespace to himself.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonNamespaceTerminating: the namespace is being deleted in the spoke.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNameTaken: something of that name is in the spoke and not of this hub.
	ReasonNameTaken = "NameTaken"
	// ReasonForbidden: the spoke's API server does not let us: rights, quota, Pod
	// Security or a webhook, which it does not tell apart but in words.
	ReasonForbidden = "Forbidden"
	// ReasonInvalid: the spoke's API server does not take such an object.
	ReasonInvalid = "Invalid"
	// ReasonAdmissionDenied: a webhook of the spoke refused with a code of its own.
	ReasonAdmissionDenied = "AdmissionDenied"
	// ReasonCreateFailed: the spoke's API server did not do it, for now.
	ReasonCreateFailed = "CreateFailed"
)

// RefusedError says why a pod is not in the spoke.
type RefusedError struct {
	// Reason is a word as of a condition, Message a sentence for the hub's user.
	Reason, Message string
	// Retried: it may heal, and is tried again.
	Retried bool
	// Err is what the API server said, if it was that.
	Err error
}

// Error is the message.
func (e *RefusedError) Error() string { return e.Message }

// Unwrap gives what the API server said.
func (e *RefusedError) Unwrap() error { return e.Err }

// refusalOf classifies an error. Whatever an API server says may heal: rights,
// quotas and policies change.
func refusalOf(err error) *RefusedError {
	if never, ok := errors.AsType[*shape.RefusedError](err); ok {
		return &RefusedError{Reason: never.Reason, Message: never.Message, Err: err}
	}
	return &RefusedError{Reason: reasonOf(err), Message: err.Error(), Retried: true, Err: err}
}

func reasonOf(err error) string {
	switch code := codeOf(err); {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ReasonNamespaceTerminating
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsInvalid(err):
		return ReasonInvalid
	case isPassing(err) || code < http.StatusBadRequest || code >= http.StatusInternalServerError:
		return ReasonCreateFailed
	default:
		return ReasonAdmissionDenied
	}
}

// isPassing tells answers of 4xx that are about the moment, not about the object.
func isPassing(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
}

// isRefusal tells what the API server judged from what went wrong on the way.
func isRefusal(err error) bool {
	switch reasonOf(err) {
	case ReasonForbidden, ReasonInvalid, ReasonAdmissionDenied:
		return true
	default:
		return false
	}
}

// codeOf is the HTTP code of an API server's answer, 0 when there was none.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

func taken(what, name, namespace string) *RefusedError {
	return &RefusedError{
		Reason:  ReasonNameTaken,
		Message: fmt.Sprintf("%s %q in namespace %q of the spoke does not belong to this hub", what, name, namespace),
		Retried: true,
	}
}
