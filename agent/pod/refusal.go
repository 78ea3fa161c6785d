// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/pod/translate"
)

// Reasons of a [RefusedError], besides those of translate.RefusedError.
const (
	// ReasonNamespaceNotAllowed: the spoke's owner keeps the namespace to himself.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonAccountNotAllowed: the service account that the pod names is not there, or
	// the spoke's owner keeps it to himself.
	ReasonAccountNotAllowed = "AccountNotAllowed"
	// ReasonClaimNotAllowed: the same of a persistent volume claim.
	ReasonClaimNotAllowed = "ClaimNotAllowed"
	// ReasonNamespaceTerminating: the namespace is being deleted in the spoke.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNameTaken: something of that name is in the spoke and not of this hub.
	ReasonNameTaken = "NameTaken"
	// ReasonRightMissing: the account that pods are written as lacks a right.
	ReasonRightMissing = "RightMissing"
	// ReasonForbidden: the spoke's API server does not let us: a quota, Pod Security or
	// another admission of its own, which it does not tell apart but in words, nor from
	// a right to change or delete what is there.
	ReasonForbidden = "Forbidden"
	// ReasonInvalid: the spoke's API server does not take such an object.
	ReasonInvalid = "Invalid"
	// ReasonAdmissionDenied: a webhook or a policy of the spoke's owner refused.
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

// newRefusal classifies an error. Whatever an API server says may heal: rights,
// quotas and policies change.
func newRefusal(err error) *RefusedError {
	if never, ok := errors.AsType[*translate.RefusedError](err); ok {
		return &RefusedError{Reason: never.Reason, Message: never.Message, Err: err}
	}
	return &RefusedError{Reason: classify(err), Message: err.Error(), Retried: true, Err: err}
}

func classify(err error) string {
	switch code := statusOf(err).Code; {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ReasonNamespaceTerminating
	case isAdmissionDenial(err):
		return ReasonAdmissionDenied
	case isMissingRight(err):
		return ReasonRightMissing
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsInvalid(err):
		return ReasonInvalid
	case isTransient(err) || code < http.StatusBadRequest || code >= http.StatusInternalServerError:
		return ReasonCreateFailed
	default:
		return ReasonAdmissionDenied
	}
}

// isAdmissionDenial tells what a webhook or a policy said from what the API server itself did.
// The API server names the object that it refuses, and webhooks as a rule do not; the
// cause that a policy gives has words alone.
func isAdmissionDenial(err error) bool {
	status := statusOf(err)
	if status.Details == nil {
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	}
	// Its own failures have such a cause, too.
	judged := status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError
	return judged && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == "" && c.Field == "" && c.Message != ""
	})
}

// isMissingRight tells that the right to make something is missing: who is asked about
// rights is not told its name, and admission is.
func isMissingRight(err error) bool {
	details := statusOf(err).Details
	return apierrors.IsForbidden(err) && details != nil && details.Kind != "" && details.Name == ""
}

// readError says why something could not be read: of that nobody but the authorizer has a
// say.
func readError(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return &RefusedError{Reason: ReasonRightMissing, Message: err.Error(), Retried: true, Err: err}
}

// isTransient tells answers of 4xx that are about the moment, not about the object.
func isTransient(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err)
}

// isRefused tells what the API server judged from what went wrong on the way.
func isRefused(err error) bool {
	switch classify(err) {
	case ReasonRightMissing, ReasonForbidden, ReasonInvalid, ReasonAdmissionDenied:
		return true
	default:
		return false
	}
}

// statusOf is an API server's answer, empty when there was none.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}
	}
	return status.Status()
}

func nameTaken(what, name, namespace string) *RefusedError {
	return &RefusedError{
		Reason:  ReasonNameTaken,
		Message: fmt.Sprintf("%s %q in namespace %q of the spoke does not belong to this hub", what, name, namespace),
		Retried: true,
	}
}

// checkConsent tells whether the owner of what was found in the spoke, or not for err, lets
// pods of the hub have it. The error is a [*RefusedError] when not; what is unlabelled
// may be there for reasons that have nothing to do with the hub.
func checkConsent(reason, what string, found metav1.Object, err error) error {
	refused := &RefusedError{Reason: reason, Retried: true, Err: err}
	switch {
	case apierrors.IsNotFound(err):
		refused.Message = what + " of the spoke is not there"
	case err != nil:
		return readError(fmt.Errorf("%s: %w", what, err))
	case found.GetLabels()[LabelPods] == PodsAllowed:
		return nil
	default:
		refused.Message = fmt.Sprintf("%s of the spoke was not made for the hub's pods, and has no label %s=%s", what, LabelPods, PodsAllowed)
	}
	return refused
}
