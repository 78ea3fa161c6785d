// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// base is what all reconcilers use.
type base struct {
	Config

	client client.Client
	// apiReader reads Secrets, whose content no cache holds, and objects that a cache may not have
	// yet.
	apiReader client.Reader
	tenants   tenantReader
	events    eventRecorder
}

func newBase(cfg Config, c client.Client, apiReader client.Reader, recorder events.EventRecorder) base {
	return base{Config: cfg, client: c, apiReader: apiReader, tenants: tenantReader{c}, events: eventRecorder{recorder}}
}

// withoutResult adapts a function that never asks for a later reconciliation.
func withoutResult(reconcileObject func(context.Context, types.NamespacedName) error) func(context.Context, types.NamespacedName) (reconcile.Result, error) {
	return func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
		return reconcile.Result{}, reconcileObject(ctx, key)
	}
}
