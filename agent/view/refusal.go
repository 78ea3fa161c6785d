// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/wire"
)

var (
	// errSecretsRefused has the message that ManagedClusterView documents.
	errSecretsRefused = errors.New("viewing secrets is not allowed")
	// errLimit is returned when the views together use all the memory that they may.
	errLimit = errors.New("the answers of all views take more memory than they may")
	// errTarget is returned for a target that cannot name an object.
	errTarget = errors.New("invalid target")
	// errUnexpectedObject is returned when the API server sends neither an object nor a row.
	errUnexpectedObject = errors.New("answer of the API server cannot be read")
)

// refusalOf returns the answer to a view that failed. It is nil for an error that is no
// answer, such as an API server that cannot be reached: then the last answer stays.
func refusalOf(err error) *wire.Refusal {
	switch {
	case errors.Is(err, errSecretsRefused):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, err.Error())
	case errors.Is(err, errLimit):
		return wire.Refuse(wire.CauseLimit, metav1.StatusReasonTooManyRequests, err.Error())
	case errors.Is(err, errTarget):
		return wire.Refuse(wire.CauseTarget, metav1.StatusReasonInvalid, err.Error())
	case errors.Is(err, errUnexpectedObject):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonNotAcceptable, err.Error())
	case apierrors.IsUnauthorized(err): // which is shown, and tried again
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonUnauthorized, err.Error())
	default:
		return refusals.Of(err)
	}
}

// notServedError is returned by a watch whose resource is not served any more.
func notServedError(m *meta.RESTMapping) error {
	return fmt.Errorf("resource %q: %w", m.Resource.GroupResource().String(), mapping.ErrNoMatch)
}

// encodeRefusal returns the body of an answer without a result.
func encodeRefusal(r *wire.Refusal) []byte {
	body, _ := json.Marshal(wire.ViewResult{Refusal: r}) //nolint:errchkjson // three strings have JSON
	return body
}

// targetsSecrets reports whether a target names Secrets in one of the usual ways, before
// the cluster is asked what it means there.
func targetsSecrets(t wire.Target) bool {
	if t.Group != "" {
		return false
	}
	name := strings.ToLower(t.Resource)
	return t.Kind == "Secret" || name == "secret" || name == "secrets"
}
