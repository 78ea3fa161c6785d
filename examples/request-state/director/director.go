// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package director makes a request and takes it through all jobs.
package director

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	v1 "github.com/spokelet/spokelet/examples/request-state/api/v1"
	"github.com/spokelet/spokelet/examples/request-state/flow"
	"github.com/spokelet/spokelet/examples/request-state/follow"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned"
	"github.com/spokelet/spokelet/examples/request-state/transition"
)

var (
	// ErrGone is returned where somebody deleted the request of the director.
	ErrGone = errors.New("it was deleted")
	// ErrRefused is returned where somebody gave the request of the director a job or
	// state of theirs.
	ErrRefused = errors.New("it was changed to something else")
)

// A Director looks after one request, and touches no other.
type Director struct {
	Client    versioned.Interface
	Namespace string
	// Request names one that an earlier director made. If empty a new one is made.
	Request string
	// Delay is how long it is pretended to take to request the next job.
	Delay time.Duration
	// Cleanup deletes the request when it is finished.
	Cleanup bool
	Log     klog.Logger
}

// Run returns nil when the request is finished, and an error in every other case.
func (d *Director) Run(ctx context.Context) error {
	request, err := d.begin(ctx)
	if err != nil {
		return err
	}
	follower := follow.Follower{
		Client: d.Client, Namespace: d.Namespace, Name: request.Name, Handlers: 1, Log: d.Log,
		Handle: func(ctx context.Context, _ string) (bool, error) { return d.direct(ctx, request) },
	}
	if err := follower.Run(ctx); err != nil {
		return fmt.Errorf("request %s/%s: not finished: %w", d.Namespace, request.Name, err)
	}
	d.Log.Info("Finished", "request", klog.KObj(request))
	return d.end(ctx, request)
}

// begin returns the request to look after.
func (d *Director) begin(ctx context.Context) (*v1.RequestState, error) {
	requests := d.Client.ComV1().RequestStates(d.Namespace)
	if d.Request != "" {
		request, err := requests.Get(ctx, d.Request, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("request %s/%s: cannot continue: %w", d.Namespace, d.Request, err)
		}
		d.Log.Info("Continuing", "request", klog.KObj(request), "job", request.Spec.Job, "state", request.Spec.State)
		return request, nil
	}
	name := string(uuid.NewUUID())
	request, err := requests.Create(ctx, newRequest(name), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Nobody else knows the name: the client sent the request twice, as it does
		// when a server asks it to, and the first one was done.
		request, err = requests.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("request %s/%s: cannot create: %w", d.Namespace, name, err)
	}
	d.Log.Info("Entered", "request", klog.KObj(request), "job", request.Spec.Job, "state", request.Spec.State)
	return request, nil
}

// newRequest has the first entry of the history too. A definition with the status
// subresource drops it, and the worker makes up for it in its first step: if the
// director did, in a second write, both parties could write at once.
func newRequest(name string) *v1.RequestState {
	return &v1.RequestState{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.RequestStateSpec{RequestUID: name, Job: flow.First.Job, State: flow.First.State},
		Status:     v1.RequestStateStatus{History: []v1.HistoryEntry{flow.NewEntry(flow.First, time.Now())}},
	}
}

// direct does one step at most. The event of the worker's next write brings the next.
func (d *Director) direct(ctx context.Context, mine *v1.RequestState) (done bool, err error) {
	requests := d.Client.ComV1().RequestStates(d.Namespace)
	request, err := requests.Get(ctx, mine.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (request.UID != mine.UID || request.DeletionTimestamp != nil) {
		return true, ErrGone
	}
	if err != nil {
		return false, fmt.Errorf("request %s/%s: cannot read: %w", d.Namespace, mine.Name, err)
	}
	decision := flow.Director(flow.At(request))
	switch decision.Action {
	case flow.Enter:
		writer := transition.Writer{Requests: requests, Delay: d.Delay}
		entered, err := writer.Enter(ctx, request, decision.Next)
		if apierrors.IsNotFound(err) {
			return true, ErrGone
		}
		if entered {
			d.Log.Info("Entered", "request", klog.KObj(request), "job", decision.Next.Job, "state", decision.Next.State)
		}
		return false, err
	case flow.Finish:
		return true, nil
	case flow.Refuse:
		return true, fmt.Errorf("%w: %s", ErrRefused, decision.Reason)
	case flow.Wait:
	}
	return false, nil
}

// end deletes the finished request, if that is wanted, and no other of its name.
func (d *Director) end(ctx context.Context, request *v1.RequestState) error {
	if !d.Cleanup {
		return nil
	}
	err := d.Client.ComV1().RequestStates(d.Namespace).Delete(ctx, request.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(request.UID)),
	})
	// Another object of that name has another UID, which is a conflict.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("request %s/%s: cannot delete: %w", d.Namespace, request.Name, err)
	}
	d.Log.Info("Deleted", "request", klog.KObj(request))
	return nil
}
