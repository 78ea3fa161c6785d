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

// Reviews are what several parts of one process ask again after each change of rights. It
// is a manager.Runnable.
type Reviews struct {
	client metadata.Interface
	log    logr.Logger
	all    []func(context.Context) error
}

// retryAfter is how long after a review that failed all are made again.
const retryAfter = 30 * time.Second

// NewReviews returns the reviews of what a cluster's RBAC objects allow: none before Add.
func NewReviews(client metadata.Interface, log logr.Logger) *Reviews {
	return &Reviews{client: client, log: log}
}

// Add adds a review, before Start. They follow each other. An error has them made again.
func (r *Reviews) Add(review func(context.Context) error) { r.all = append(r.all, review) }

// Start follows the RBAC objects until ctx ends. Once they are watched everything is
// reviewed: what was asked before may have changed since.
func (r *Reviews) Start(ctx context.Context) error {
	var schedule *Schedule
	retry := time.AfterFunc(retryAfter, func() { schedule.Changed() })
	retry.Stop()
	defer retry.Stop()
	schedule = NewSchedule(func(ctx context.Context) {
		if err := r.review(ctx); err != nil && ctx.Err() == nil {
			r.log.Info("rights are reviewed again: the API server could not be asked", "err", err.Error())
			retry.Reset(retryAfter)
		}
	})
	defer Follow(r.client, changes{schedule}, r.log)()
	schedule.Run(ctx)
	return nil
}

func (r *Reviews) review(ctx context.Context) (err error) {
	for _, review := range r.all {
		err = errors.Join(err, review(ctx))
	}
	return err
}

// changes is a Sink.
type changes struct{ *Schedule }

func (changes) Lost()            {}
func (changes) Found()           {}
func (c changes) Changed(string) { c.Schedule.Changed() }
