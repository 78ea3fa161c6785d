// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/registry"
)

// Pauses between attempts of what may go by itself: they double from the first to the last.
const (
	minRetryDelay = 50 * time.Millisecond // a cache has the newer object by then
	maxRetryDelay = 5 * time.Minute
)

// retryPolicy has a controller try again, without a word in its log, what is no failure of it.
type retryPolicy struct {
	limiter workqueue.TypedRateLimiter[reconcile.Request]
}

func newRetries() retryPolicy {
	return retryPolicy{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay)}
}

// result is what a controller answers for a request that ended so.
func (r retryPolicy) result(req reconcile.Request, result reconcile.Result, err error) (reconcile.Result, error) {
	switch {
	case err != nil && isExpected(err):
		return reconcile.Result{RequeueAfter: r.limiter.When(req)}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		err = nil // what was to be made would go with the rest
	}
	if err == nil {
		r.limiter.Forget(req)
	}
	return result, err
}

// isExpected tells whether an error is that others changed objects while we looked at them, or
// something that is away, which a status tells.
func isExpected(err error) bool {
	if _, ok := errors.AsType[*statusError](err); ok {
		return true
	}
	return errors.Is(err, registry.ErrUnavailable) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
