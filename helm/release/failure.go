// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/helm/chart"
)

// maxMessage bounds a message: that of a template may quote a whole manifest.
const maxMessage = 16 << 10

var (
	// errReleaseState is returned if the status of a release does not allow the request.
	errReleaseState = errors.New("nothing was done")
	// errRequest is returned for an invalid request.
	errRequest = errors.New("request cannot be used")
	// errUnknown is returned if the outcome of an earlier request cannot be determined.
	errUnknown = errors.New("outcome unknown: the action was interrupted, and is not repeated")
)

// failureOf converts an error for the agent.
func (o *operation) failureOf(err error) *message.Failure {
	f := &message.Failure{Cause: message.Refused, Message: err.Error()}
	var status apierrors.APIStatus
	switch {
	case errors.Is(err, errUnknown):
		f.Cause = message.Unknown
	case isAny(err, chart.ErrTooLarge, chart.ErrTooLong):
		f.Cause = message.Limit
	case errors.Is(err, chart.ErrUnavailable):
		f.Cause = message.Unavailable
	case isAny(err, chart.ErrURL, chart.ErrChart, chart.ErrValues, errRequest, errNotServed):
		f.Cause = message.Invalid
	case errors.Is(err, context.DeadlineExceeded):
		o.setTimeout(f)
	case isAny(err, chart.ErrNotAllowed, errReleaseState, driver.ErrReleaseNotFound, driver.ErrReleaseExists):
	case errors.As(err, &status):
		f.Reason = string(status.Status().Reason)
		if code := status.Status().Code; code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
			f.Cause = message.Unavailable
		}
	case !o.end.IsZero() && !time.Now().Before(o.end): // Helm does not wrap all errors of its waits
		o.setTimeout(f)
	}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "") + "..."
	}
	return f
}

// setTimeout reports that the timeout was exceeded.
func (o *operation) setTimeout(f *message.Failure) {
	f.Cause, f.Message = message.Limit, fmt.Sprintf("it was not done within %s: %s", o.request.Timeout, f.Message)
	if o.request.Verb == message.Recover { // it only asks
		f.Cause = message.Unavailable
	}
}

func isAny(err error, kinds ...error) bool {
	for _, one := range kinds {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
