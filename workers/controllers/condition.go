// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/workers/store"
)

// maxMessage bounds the messages of conditions: etcd keeps them with each object.
const maxMessage = 2048

// verdict is what a condition says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) verdict {
	return verdict{status: metav1.ConditionTrue, reason: reason, message: message}
}

func no(reason, message string) verdict {
	return verdict{status: metav1.ConditionFalse, reason: reason, message: message}
}

func unknown(reason, message string) verdict {
	return verdict{status: metav1.ConditionUnknown, reason: reason, message: message}
}

// set writes a verdict into conditions.
func set(conditions *[]metav1.Condition, kind string, generation int64, v verdict) {
	if len(v.message) > maxMessage {
		v.message = strings.ToValidUTF8(v.message[:maxMessage], "")
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: v.status, Reason: v.reason, Message: v.message, ObservedGeneration: generation,
	})
}

// is tells whether a condition is True and of that generation.
func is(conditions []metav1.Condition, kind string, generation int64) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// hasReason tells whether a condition is there and has the reason.
func hasReason(conditions []metav1.Condition, kind, reason string) bool {
	c := meta.FindStatusCondition(conditions, kind)
	return c != nil && c.Reason == reason
}

// problem is why something cannot be served as it is, in words for its status.
type problem struct {
	reason string
	err    error
}

// Error implements error.
func (p *problem) Error() string { return p.err.Error() }

// Unwrap returns what the problem comes from.
func (p *problem) Unwrap() error { return p.err }

func problemf(reason, format string, args ...any) *problem {
	return &problem{reason: reason, err: fmt.Errorf(format, args...)}
}

// asProblem tells a problem from any other error.
func asProblem(err error) (*problem, error) {
	if p, ok := errors.AsType[*problem](err); ok {
		return p, nil
	}
	return nil, err
}

// passing tells whether it may go without that anything here changes.
func (p *problem) passing() bool { return errors.Is(p.err, store.ErrUnavailable) }
