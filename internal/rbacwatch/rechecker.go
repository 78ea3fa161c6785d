// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rbacwatch

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"
)

// Rechecker runs the checks of several parts of a process again after each change of rights.
// It is a manager.Runnable.
type Rechecker struct {
	client metadata.Interface
	log    logr.Logger
	checks []func(context.Context) error
}

// retryAfter is the pause before all checks run again because one failed.
const retryAfter = 30 * time.Second

// NewRechecker returns a Rechecker without checks.
func NewRechecker(client metadata.Interface, log logr.Logger) *Rechecker {
	return &Rechecker{client: client, log: log}
}

// Add adds a check, before Start. Checks run one after the other; an error has all run again.
func (r *Rechecker) Add(check func(context.Context) error) { r.checks = append(r.checks, check) }

// Start watches the RBAC objects until ctx ends. Once they are watched all checks run: what
// was asked before may have changed since.
func (r *Rechecker) Start(ctx context.Context) error {
	var schedule *Schedule
	retry := time.AfterFunc(retryAfter, func() { schedule.Trigger() })
	retry.Stop()
	defer retry.Stop()
	schedule = NewSchedule(func(ctx context.Context) {
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			r.log.Info("cannot ask the API server about rights; trying again", "err", err.Error())
			retry.Reset(retryAfter)
		}
	})
	defer Watch(r.client, scheduleHandler{schedule}, r.log)()
	schedule.Run(ctx)
	return nil
}

func (r *Rechecker) check(ctx context.Context) (err error) {
	for _, check := range r.checks {
		err = errors.Join(err, check(ctx))
	}
	return err
}

// scheduleHandler triggers a schedule at each change.
type scheduleHandler struct{ *Schedule }

func (scheduleHandler) WatchLost()             {}
func (scheduleHandler) WatchEstablished()      {}
func (c scheduleHandler) RightsChanged(string) { c.Trigger() }
