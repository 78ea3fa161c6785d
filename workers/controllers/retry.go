// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/spokelet/spokelet/workers/registry"
)

// Delays between attempts double from the first to the last.
const (
	minRetryDelay = 50 * time.Millisecond // a cache has the newer object by then
	maxRetryDelay = 5 * time.Minute
)

// withRetry returns a reconciler that retries expected errors without logging them.
func withRetry(reconcileObject func(context.Context, types.NamespacedName) (reconcile.Result, error)) reconcile.Func {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetryDelay, maxRetryDelay)
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := reconcileObject(ctx, req.NamespacedName)
		switch {
		case err != nil && isExpected(err):
			return reconcile.Result{RequeueAfter: limiter.When(req)}, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			err = nil // the object would be deleted with its namespace
		}
		if err == nil {
			limiter.Forget(req)
		}
		return result, err
	}
}

// isExpected reports whether an error comes from a concurrent change of an object, or from a
// service that is not available, which a status reports.
func isExpected(err error) bool {
	if _, ok := errors.AsType[*statusError](err); ok {
		return true
	}
	return errors.Is(err, registry.ErrUnavailable) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
