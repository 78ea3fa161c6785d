// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"
)

// Reviews are what several parts of one process ask again after each change of rights. It
// is a manager.Runnable.
type Reviews struct {
	client metadata.Interface
	log    logr.Logger
	all    []func(context.Context)
}

// NewReviews returns the reviews of what a cluster's RBAC objects allow: none before Add.
func NewReviews(client metadata.Interface, log logr.Logger) *Reviews {
	return &Reviews{client: client, log: log}
}

// Add adds a review, before Start. They follow each other.
func (r *Reviews) Add(review func(context.Context)) { r.all = append(r.all, review) }

// Start follows the RBAC objects until ctx ends. Once they are watched everything is
// reviewed: what was asked before may have changed since.
func (r *Reviews) Start(ctx context.Context) error {
	schedule := NewSchedule(r.review)
	defer Follow(r.client, changes{schedule}, r.log)()
	schedule.Run(ctx)
	return nil
}

func (r *Reviews) review(ctx context.Context) {
	for _, review := range r.all {
		review(ctx)
	}
}

// changes is a Sink.
type changes struct{ *Schedule }

func (changes) Lost()            {}
func (changes) Found()           {}
func (c changes) Changed(string) { c.Schedule.Changed() }
