// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/spokelet/spokelet/workers/httpclient"
)

var (
	// ErrMissing: nothing is stored there.
	ErrMissing = errors.New("nothing is stored there")
	// ErrChanged: an object is not the one that was listed.
	ErrChanged = errors.New("the object was changed after it was listed")
	// ErrTooLarge: a script has more modules or bytes than the limit.
	ErrTooLarge = errors.New("the script is too large")
	// ErrDuplicate: two objects have the name of one module.
	ErrDuplicate = errors.New("two objects have the same name")
	// ErrForeign: a key is not one of the account's.
	ErrForeign = errors.New("the key is not below the account's id")
	// ErrUnavailable: the store does not answer, or says that it cannot now. It is worth
	// trying again.
	ErrUnavailable = errors.New("the object store is not available")
	// ErrDenied: the store refuses the operator's credentials, or has no such bucket. That is
	// no fault of a script: it is ErrUnavailable too.
	ErrDenied = fmt.Errorf("the object store refuses the operator: %w", ErrUnavailable)
)

// missingCodes are of an object, deniedCodes of what the operator was configured with.
var (
	missingCodes = []string{minio.NoSuchKey, minio.NoSuchVersion}
	deniedCodes  = []string{
		minio.AccessDenied, minio.NoSuchBucket, "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"AllAccessDisabled", "AccountProblem", "InvalidToken", "RequestTimeTooSkewed",
	}
)

// classify maps an error of the client to one of the package. The context is the caller's: its
// cancellation is no failure of the store.
func classify(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) || answer.StatusCode == 0 && answer.Code == "" {
		return fmt.Errorf("%w: %w", ErrUnavailable, httpclient.StableError(err))
	}
	switch status := answer.StatusCode; {
	case slices.Contains(missingCodes, answer.Code):
		return ErrMissing
	case answer.Code == minio.PreconditionFailed || status == http.StatusPreconditionFailed:
		return ErrChanged
	case slices.Contains(deniedCodes, answer.Code), status == http.StatusForbidden, status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %s", ErrDenied, answer.Code)
	case status == http.StatusNotFound:
		return ErrMissing
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, answer.Code == "SlowDown":
		return fmt.Errorf("%w: %s", ErrUnavailable, answer.Code)
	default:
		return fmt.Errorf("the object store answers %d: %s", status, answer.Code)
	}
}
