// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	fieldOwner = client.FieldOwner("spokelet-hub")
	// annotationManaged marks the ManagedClusters that are ours.
	annotationManaged = "spokelet.io/managed"
	// reconcilers is how many parents of one kind are looked at together, writers how many
	// Works of one parent are written so.
	reconcilers = 4
	writers     = 16
	// pace is the shortest time between two statuses of one parent.
	pace = time.Second
)

// Access asks the API server what a user may do. client-go's SubjectAccessReviews are
// one.
type Access interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, opts metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Config is what a controller is made of. All but the logger is required.
type Config struct {
	// Client reads from the cache, and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Access asks what authors may do; Metadata watches who decides.
	Access   Access
	Metadata metadata.Interface
	Logger   logr.Logger
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Client == nil || c.Live == nil:
		return errors.New("fan-out needs a client and a live reader")
	case c.Access == nil || c.Metadata == nil:
		return errors.New("fan-out needs access reviews and metadata")
	}
	return nil
}
