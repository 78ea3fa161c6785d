// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/store"
	"github.com/spokelet/spokelet/workers/truncate"
)

// maxMessage bounds the messages of conditions: etcd keeps them with each object.
const maxMessage = 2048

// conditionState is the status, the reason and the message of a condition.
type conditionState struct {
	status          metav1.ConditionStatus
	reason, message string
}

func conditionTrue(reason, message string) conditionState {
	return conditionState{status: metav1.ConditionTrue, reason: reason, message: message}
}

func conditionFalse(reason, message string) conditionState {
	return conditionState{status: metav1.ConditionFalse, reason: reason, message: message}
}

func conditionUnknown(reason, message string) conditionState {
	return conditionState{status: metav1.ConditionUnknown, reason: reason, message: message}
}

// setCondition sets a condition.
func setCondition(conditions *[]metav1.Condition, kind string, generation int64, v conditionState) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: truncate.Text(v.message, maxMessage), ObservedGeneration: generation,
	})
}

// isTrueForGeneration reports whether a condition is True and observed that generation.
func isTrueForGeneration(conditions []metav1.Condition, kind string, generation int64) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// hasReason reports whether a condition exists and has the reason.
func hasReason(conditions []metav1.Condition, kind, reason string) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Reason == reason
}

// statusError is an error that a status reports to users, with the reason of the condition.
type statusError struct {
	reason string
	err    error
}

func (p *statusError) Error() string { return p.err.Error() }

// Unwrap returns what the problem comes from.
func (p *statusError) Unwrap() error { return p.err }

func newStatusError(reason, format string, args ...any) *statusError {
	return &statusError{reason: reason, err: fmt.Errorf(format, args...)}
}

// splitStatusError returns either the [*statusError] in an error, or the error.
func splitStatusError(err error) (*statusError, error) {
	if p, ok := errors.AsType[*statusError](err); ok {
		return p, nil
	}
	return nil, err
}

// retry returns the error if nothing but time resolves it: the object is to be reconciled again.
func (p *statusError) retry() error {
	if p != nil && errors.Is(p.err, store.ErrUnavailable) {
		return p
	}
	return nil
}

// setFromError sets a condition to ok, or to False with the reason of a [*statusError], which it
// returns. Any other error is returned and changes nothing.
func setFromError(conditions *[]metav1.Condition, kind string, generation int64, err error, ok conditionState) (*statusError, error) {
	p, err := splitStatusError(err)
	if err != nil {
		return nil, err
	}
	if p != nil {
		ok = conditionFalse(p.reason, p.Error())
	}
	setCondition(conditions, kind, generation, ok)
	return p, nil
}
