// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"errors"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/quota"
	"github.com/spokelet/spokelet/internal/rbacwatch"
)

const (
	fieldOwner = client.FieldOwner("spokelet-hub")
	// reconcilers is how many parents of one kind are reconciled at once, writers how many
	// Works of one parent are written so.
	reconcilers = 4
	writers     = 16
	// statusInterval is the shortest time between two statuses of one parent.
	statusInterval = time.Second
)

// Config is what a controller is made of. All but Writes and the logger is required.
type Config struct {
	// Client reads from the cache, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Access reviews the rights of authors, and Rights repeats the reviews after changes.
	Access rbacwatch.AccessReviewer
	Rights *rbacwatch.Rechecker
	// Authors is the registration under which authors have to be recorded.
	Authors *requester.Registration
	// Writes bounds what is written because of what clusters answer; nil has no bounds.
	Writes *quota.Writes
	Logger logr.Logger
}

// Validate reports missing or contradictory fields.
func (c *Config) Validate() error {
	switch {
	case c.Client == nil || c.Live == nil:
		return errors.New("fan-out needs a client and a live reader")
	case c.Access == nil || c.Rights == nil || c.Authors == nil:
		return errors.New("fan-out needs access reviews, rights and authors")
	}
	return nil
}
