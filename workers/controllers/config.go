// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/config"
)

// Store is where scripts are stored.
type Store interface {
	// List returns the modules at the URLs of an account.
	List(ctx context.Context, account string, urls []string) ([]releasev1alpha1.Module, error)
}

// Registry is where images are stored, in a repository for each account.
type Registry interface {
	Exists(ctx context.Context, account, digest string) (bool, error)
	Delete(ctx context.Context, account, digest string) error
}

// Config configures the controllers.
type Config struct {
	Store    Store
	Registry Registry
	// Namespace of the operator, in which Jobs run.
	Namespace string
	// Settings are those of the operator's file, with defaults.
	Settings config.Config
}
