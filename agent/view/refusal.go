// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/mapping"
	"github.com/spokelet/spokelet/api/wire"
)

var (
	// errSecretsRefused has the message that ManagedClusterView documents.
	errSecretsRefused = errors.New("viewing secrets is not allowed")
	// errLimit: the views of the hub hold all that they may.
	errLimit = errors.New("the answers of all views take more memory than they may")
	// errTarget: a target names no objects.
	errTarget = errors.New("invalid target")
	// errUnexpectedObject: the API server sent what is neither an object nor a row.
	errUnexpectedObject = errors.New("answer of the API server cannot be read")
)

// accessError is what the kube door says of a requester.
type accessError struct{ error }

// Unwrap returns the door's error.
func (e accessError) Unwrap() error { return e.error }

// refusalOf is the answer to a view that failed. It is nil for what is no answer, such as
// an API server that cannot be reached: then the last answer stands.
func refusalOf(err error) *wire.Refusal {
	var status apierrors.APIStatus
	var denied accessError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSecretsRefused), errors.As(err, &denied):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, err.Error())
	case errors.Is(err, errLimit):
		return wire.Refuse(wire.CauseLimit, metav1.StatusReasonTooManyRequests, err.Error())
	case errors.Is(err, mapping.ErrNoMatch):
		return wire.Refuse(wire.CauseTarget, metav1.StatusReasonNotFound, err.Error())
	case errors.Is(err, mapping.ErrAmbiguous), errors.Is(err, errTarget):
		return wire.Refuse(wire.CauseTarget, metav1.StatusReasonInvalid, err.Error())
	case errors.Is(err, errUnexpectedObject):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonNotAcceptable, err.Error())
	case errors.As(err, &status) && isFinal(status.Status().Code):
		return wire.Refuse(wire.CauseRequest, status.Status().Reason, status.Status().Message)
	default:
		return nil
	}
}

// isFinal reports whether a status of the API server is about the request. The others
// pass: the server is busy or failed, or the version to resume from is too old.
func isFinal(code int32) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusGone, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// notServedError is the error of a watch whose resource is defined no longer.
func notServedError(m *meta.RESTMapping) error {
	return fmt.Errorf("resource %q: %w", m.Resource.GroupResource().String(), mapping.ErrNoMatch)
}

// encodeRefusal is the body of an answer without result.
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
