// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	livev1alpha1 "github.com/spokelet/spokelet/api/live/v1alpha1"
	"github.com/spokelet/spokelet/internal/httpproxy"
	"github.com/spokelet/spokelet/tunnel"
)

var (
	// errNotCluster means that a table of clusters was asked for something else.
	errNotCluster = errors.New("object is not a Cluster")
	// errNoRequestInfo means that the handler chain is not the expected one.
	errNoRequestInfo = errors.New("request was not parsed")
	// errTooLarge is what reading an answer ends with at its bound.
	errTooLarge = errors.New("answer is too large")
	// errMetadataTooLong means that an answer's kind, version or metadata are longer than an API
	// server makes them.
	errMetadataTooLong = errors.New("kind, version and metadata are too long")
	// errMemory means that an answer or a cluster's discovery was not read because too
	// much of others is held, of the same caller, of the same cluster or of all.
	errMemory = errors.New("too much of other answers is held: try again")
	// errDiscoveryLimit means that a cluster claims to serve more than a hub can hold
	// of any.
	errDiscoveryLimit = errors.New("discovery is beyond its bounds")
	// errRedirect means that a cluster sent its caller elsewhere. The place would
	// be one of the hub's, with the caller's credentials for the hub.
	errRedirect = errors.New("answer is a redirect, which is not passed on")
	// errStatusCode means that an answer's code is none that ends the request: it is
	// not HTTP's, or a 1xx one, or 101 where no upgrade was asked for.
	errStatusCode = errors.New("answer has no valid status code")
)

// newUnreachableError is the error of a cluster that could not be asked. It names the
// cluster and suggests no retry, unless the way was merely full: when an agent
// comes back is not known here.
func newUnreachableError(cluster string, err error) error {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusBadGateway,
		Reason:  metav1.StatusReasonInternalError,
		Message: describeError(cluster, err),
		Details: &metav1.StatusDetails{Group: livev1alpha1.GroupName, Kind: clustersResource, Name: cluster},
	}
	switch code := tunnel.StatusCode(err); {
	case errors.Is(err, httpproxy.ErrUpgrade):
		status.Code, status.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	case code == http.StatusTooManyRequests:
		status.Code, status.Reason = int32(code), metav1.StatusReasonTooManyRequests
		status.Details.RetryAfterSeconds = 1
	case code == http.StatusServiceUnavailable:
		status.Code, status.Reason = int32(code), metav1.StatusReasonServiceUnavailable
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// describeError names the cluster once: errors of the tunnel do so already.
func describeError(cluster string, err error) string {
	if down := (*tunnel.NotConnectedError)(nil); errors.As(err, &down) {
		return down.Error()
	}
	return fmt.Sprintf("cluster %q: %v", cluster, err)
}
