// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"errors"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/api/wire"
)

const (
	// maxViews bounds the views that run; those beyond it are refused, and wait.
	maxViews = 1000
	// maxMemory bounds the answers of all views together, in bytes.
	maxMemory = 64 << 20
)

// Door authorizes users of the hub.
type Door interface {
	// Config returns a configuration that acts as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
	// Identity returns the user and the groups that the API server sees for a requester.
	Identity(r wire.Requester) (user string, groups []string, err error)
}

// Resources finds the resources of the cluster.
type Resources interface {
	// Resource wraps mapping.ErrNoMatch or mapping.ErrAmbiguous, if the cluster was read.
	Resource(t wire.Target) (*meta.RESTMapping, error)
	// Reset discards what discovery has returned, because the cluster may serve something
	// new.
	Reset()
}

// Config configures an engine.
type Config struct {
	// Door and Resources are required.
	Door      Door
	Resources Resources
	// Reviews reviews the rights of users. Metadata watches roles, bindings and definitions
	// of resources. Both act as the agent itself; required.
	Reviews  authorizationv1.SubjectAccessReviewInterface
	Metadata metadata.Interface
	Logger   logr.Logger
}

// Validate returns an error if a required field is missing.
func (c *Config) Validate() error {
	if c.Door == nil || c.Resources == nil || c.Reviews == nil || c.Metadata == nil {
		return errors.New("views need a door, resources, reviews and metadata")
	}
	return nil
}
