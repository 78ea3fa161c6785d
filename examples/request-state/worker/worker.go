// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package worker executes the jobs that are requested in a namespace, whoever
// requested them.
package worker

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/spokelet/spokelet/examples/request-state/flow"
	"github.com/spokelet/spokelet/examples/request-state/follow"
	"github.com/spokelet/spokelet/examples/request-state/generated/clientset/versioned"
	"github.com/spokelet/spokelet/examples/request-state/transition"
)

// handlers is how many requests are executed at once.
const handlers = 8

// A Worker executes jobs.
type Worker struct {
	Client    versioned.Interface
	Namespace string
	// Delay is how long each step of a job is pretended to take.
	Delay time.Duration
	Log   klog.Logger
}

// Run executes until the context ends, which is no error.
func (w *Worker) Run(ctx context.Context) error {
	w.Log.Info("Executing requests", "namespace", w.Namespace)
	follower := follow.Follower{
		Client: w.Client, Namespace: w.Namespace, Handlers: handlers, Log: w.Log,
		Handle: func(ctx context.Context, name string) (bool, error) { return false, w.execute(ctx, name) },
	}
	if err := follower.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// execute does one step at most. The event of its own write brings the next.
func (w *Worker) execute(ctx context.Context, name string) error {
	requests := w.Client.ComV1().RequestStates(w.Namespace)
	// The cache of the informer may be older than the last write of this very worker,
	// which would then do the work of that step again.
	request, err := requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && request.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("request %s/%s: cannot read: %w", w.Namespace, name, err)
	}
	log := w.Log.WithValues("request", klog.KObj(request))
	decision := flow.Worker(flow.At(request))
	switch decision.Action {
	case flow.Enter:
		writer := transition.Writer{Requests: requests, Delay: w.Delay}
		entered, err := writer.Enter(ctx, request, decision.Next)
		if apierrors.IsNotFound(err) {
			log.Info("Deleted while it was executed")
			return nil
		}
		if entered {
			log.Info("Entered", "job", decision.Next.Job, "state", decision.Next.State)
		}
		return err
	case flow.Refuse:
		log.Info("Left alone", "reason", decision.Reason)
	case flow.Wait, flow.Finish:
	}
	return nil
}
