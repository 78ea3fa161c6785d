// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package transition

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
)

// Client reads and writes the requests of a namespace. The generated client is one.
type Client interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.RequestState, error)
	Update(ctx context.Context, r *v1.RequestState, opts metav1.UpdateOptions) (*v1.RequestState, error)
	UpdateStatus(ctx context.Context, r *v1.RequestState, opts metav1.UpdateOptions) (*v1.RequestState, error)
}

// A Writer makes requests enter steps.
type Writer struct {
	Requests Client
	// Delay is how long the work of a step is pretended to take.
	Delay time.Duration
}

// Enter does the work of a step and then makes the request enter it. It returns false
// where the request has left the step in which it was seen: somebody else did the
// step, and what to do now is a new decision.
func (w Writer) Enter(ctx context.Context, seen *v1.RequestState, next flow.Step) (bool, error) {
	if err := pretend(ctx, w.Delay); err != nil {
		return false, err
	}
	entered := false
	// The default backoff is a hundredth of a second and grows little, as conflicts
	// here are rare. Beyond its end the caller tries again later.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		r, err := w.Requests.Get(ctx, seen.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// A decision depends on the step alone. While the step is the same, so is the
		// decision, whatever else has changed.
		if r.UID != seen.UID || r.DeletionTimestamp != nil || flow.At(r) != flow.At(seen) {
			return nil
		}
		err = w.write(ctx, r, next)
		entered = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("request %s/%s: cannot enter %s: %w", seen.Namespace, seen.Name, next, err)
	}
	return entered, nil
}

// write needs the resource version of what was read, so that the API server refuses it
// with a conflict when anything has changed since.
func (w Writer) write(ctx context.Context, r *v1.RequestState, next flow.Step) error {
	history := flow.History(r, next, time.Now())
	if !slices.Equal(history, r.Status.History) {
		r.Status.History = history
		written, err := w.Requests.UpdateStatus(ctx, r, metav1.UpdateOptions{})
		switch {
		case err == nil:
			r = written
		// There is no status subresource, or no object any more. The update below
		// tells the two apart. Asking at each step, rather than once by discovery,
		// stays right when the definition is replaced under a running program.
		case apierrors.IsNotFound(err):
		default:
			return err
		}
	}
	r.Spec.Job, r.Spec.State = next.Job, next.State
	_, err := w.Requests.Update(ctx, r, metav1.UpdateOptions{})
	return err
}

func pretend(ctx context.Context, delay time.Duration) error {
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
