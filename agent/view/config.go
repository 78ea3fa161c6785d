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
	// maxViews bounds the views that are followed; those beyond it wait, refused.
	maxViews = 1000
	// maxMemory bounds what all views together keep of their answers, in bytes.
	maxMemory = 64 << 20
)

// Door lets users of the hub in.
type Door interface {
	// Config reaches the cluster as the requester. The error refuses it.
	Config(r wire.Requester) (*rest.Config, error)
	// Identity is the user and the groups that the API server sees for a requester.
	Identity(r wire.Requester) (user string, groups []string, err error)
}

// Resources finds the resources of the cluster.
type Resources interface {
	// Resource wraps mapping.ErrNoMatch or mapping.ErrAmbiguous, if the cluster was read.
	Resource(t wire.Target) (*meta.RESTMapping, error)
	// Reset says that the cluster may serve something new.
	Reset()
}

// Config is what an engine is made of.
type Config struct {
	// Door and Resources are required.
	Door      Door
	Resources Resources
	// Reviews asks what users may do. Metadata watches roles, bindings and definitions of
	// resources. Both act as the agent itself; required.
	Reviews  authorizationv1.SubjectAccessReviewInterface
	Metadata metadata.Interface
	Logger   logr.Logger
}

// Validate names what is missing.
func (c *Config) Validate() error {
	if c.Door == nil || c.Resources == nil || c.Reviews == nil || c.Metadata == nil {
		return errors.New("views need a door, resources, reviews and metadata")
	}
	return nil
}
